// Scheduled writes reports by the clock: one each weekday at nine in Berlin, and, so that there is something to see, one
// every two seconds. Start it as often as you like, kill some of them: each tick has one report.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/actors/redisstate"
	"github.com/weir-run/weir/actors/schedule"
	"github.com/weir-run/weir/streambridge/redisstream"
	"github.com/weir-run/weir/supervision"
)

// Params is the payload of a report.
type Params struct {
	Team    string
	Seconds int // how far back it looks
}

func report(c *actors.Context, m Params) (string, error) {
	// The tick, not the clock: a report that runs late still covers its own time, and so does one that is run again.
	until := c.Info().Due
	from := until.Add(-time.Duration(m.Seconds) * time.Second)
	data, err := actors.Step(c, "collect", func(actors.StepContext) (string, error) {
		return fmt.Sprintf("%s from %s to %s", m.Team, from.UTC().Format(time.DateTime), until.UTC().Format(time.TimeOnly)), nil
	})
	if err != nil {
		return "", err
	}
	// Sent once, or a person decides: see weir task for one whose node died in the middle of it.
	return actors.Step(c, "mail", func(actors.StepContext) (string, error) {
		fmt.Println("report:", data)
		return "sent: " + data, nil
	}, actors.Unrepeatable())
}

var (
	daily = schedule.Schedule{
		Name: "daily-report", Cron: "0 9 * * 1-5", Zone: "Europe/Berlin",
		Missed:  schedule.RunOne, // one report makes up for a weekend in which nothing ran
		Overlap: schedule.Skip,   // and none begins while one is still being written
		Task:    actors.NewTask{Type: "report", Payload: Params{Team: "platform", Seconds: 24 * 3600}},
		When: func(_ context.Context, tick time.Time) (bool, error) {
			return tick.Month() != time.August, nil
		},
	}
	often = schedule.Schedule{
		Name: "every-two-seconds", Every: 2 * time.Second, Missed: schedule.Skip,
		Task: actors.NewTask{Type: "report", Payload: Params{Team: "demo", Seconds: 2}},
	}
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	rdb := redis.NewClient(&redis.Options{Addr: cmp.Or(os.Getenv("REDIS_ADDR"), "localhost:6379")})
	rt, err := supervision.New(supervision.Config{
		Stream: redisstream.New(rdb), State: redisstate.New(rdb),
		Agents:    actors.Agents{"report": actors.Func(report)},
		Schedules: []schedule.Schedule{daily, often},
		Logger:    supervision.Slog(slog.Default()),
	})
	if err == nil {
		defer rt.Subscribe(func(e supervision.Event) {
			if m, ok := e.(supervision.ScheduleMissed); ok {
				slog.Warn("nobody was up", "schedule", m.Schedule, "from", m.From, "to", m.To)
			}
		})()
		err = rt.Run(ctx)
	}
	if err != nil {
		slog.Error("stopped", "err", err)
		os.Exit(1)
	}
}
