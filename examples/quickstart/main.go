// Quickstart serves one agent until Ctrl-C. Give it work, and see the answer with go run ./cmd/weir task ada:
// redis-cli XADD agent:tasks '*' task_id ada type hello payload '{"Name":"Ada"}'
package main

import (
	"cmp"
	"context"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/redis/go-redis/v9"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/actors/redisstate"
	"github.com/weir-run/weir/streambridge/redisstream"
	"github.com/weir-run/weir/supervision"
)

type Hello struct{ Name string }

func hello(c *actors.Context, m Hello) (string, error) {
	return actors.Step(c, "greet", func(actors.StepContext) (string, error) { return "hi " + m.Name, nil })
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	rdb := redis.NewClient(&redis.Options{Addr: cmp.Or(os.Getenv("REDIS_ADDR"), "localhost:6379")})
	rt, err := supervision.New(supervision.Config{
		Stream: redisstream.New(rdb), State: redisstate.New(rdb), Agents: actors.Agents{"hello": actors.Func(hello)},
	})
	if err == nil {
		err = rt.Run(ctx)
	}
	if err != nil {
		log.Fatal(err)
	}
}
