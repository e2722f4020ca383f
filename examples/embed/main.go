// Embed is a service that takes webhooks and runs the agents in the same process.
//
//	POST /orders          a webhook; the header X-Event-Id makes it idempotent
//	GET  /orders/{id}     the result, waiting up to 25 s
//	GET  /livez, /readyz  for the platform
//
// It stops in order: not ready, then the listener, then the runtime, so that webhooks in flight can still submit.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/actors/redisstate"
	"github.com/weir-run/weir/streambridge/redisstream"
	"github.com/weir-run/weir/supervision"
)

// Order is what the webhook brings, Receipt what the agent makes of it.
type (
	Order   struct{ Item string }
	Receipt struct{ Text string }
)

func fulfil(c *actors.Context, m Order) (Receipt, error) {
	reserved, err := actors.Step(c, "reserve", func(s actors.StepContext) (string, error) {
		return "shelf 7", nil // a call to the warehouse, with s as its context and s.Key as its idempotency key
	}, actors.Retries(5))
	if err != nil {
		return Receipt{}, err
	}
	return Receipt{fmt.Sprintf("%s is on %s", m.Item, reserved)}, nil
}

type server struct {
	tasks    *actors.Client
	runtime  *supervision.Runtime
	stopping atomic.Bool
}

func (s *server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders", s.hook)
	mux.HandleFunc("GET /orders/{id}", s.result)
	mux.HandleFunc("GET /livez", probe(s.runtime.Live))
	mux.HandleFunc("GET /readyz", probe(s.ready))
	return mux
}

func (s *server) hook(w http.ResponseWriter, r *http.Request) {
	var order Order
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&order); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	task, err := s.tasks.Submit(r.Context(), actors.NewTask{Type: "fulfil", ID: r.Header.Get("X-Event-Id"), Payload: order})
	var shut *actors.GateError
	switch {
	case errors.Is(err, actors.ErrConflict):
		http.Error(w, err.Error(), http.StatusConflict)
	case errors.As(err, &shut):
		w.Header().Set("Retry-After", strconv.Itoa(int(shut.RetryAfter/time.Second)+1))
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	case errors.Is(err, actors.ErrBacklogFull):
		w.Header().Set("Retry-After", "5")
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	case err != nil:
		http.Error(w, "try again", http.StatusBadGateway)
	default:
		w.WriteHeader(http.StatusAccepted)
		_ = json.NewEncoder(w).Encode(map[string]any{"id": task.ID, "known": task.Known})
	}
}

func (s *server) result(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), 25*time.Second)
	defer cancel()
	receipt, err := actors.Result[Receipt](ctx, s.tasks.Task(r.PathValue("id")))
	var failed *actors.TaskError
	switch {
	case errors.Is(err, actors.ErrNoTask):
		http.NotFound(w, r)
	case errors.Is(err, actors.ErrNotEnded):
		w.WriteHeader(http.StatusAccepted)
	case errors.As(err, &failed):
		http.Error(w, failed.Reason, http.StatusUnprocessableEntity)
	case err != nil:
		http.Error(w, "try again", http.StatusBadGateway)
	default:
		_, _ = w.Write([]byte(receipt.Text))
	}
}

func (s *server) ready() error {
	if s.stopping.Load() {
		return errors.New("stopping")
	}
	return s.runtime.Ready()
}

func probe(check func() error) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if err := check(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	}
}

// run serves until ctx ends. listening is told the address.
func run(ctx context.Context, redisAddr, addr string, listening func(net.Addr)) error {
	rdb := redis.NewClient(&redis.Options{Addr: redisAddr})
	defer rdb.Close()
	rt, err := supervision.New(supervision.Config{
		Stream: redisstream.New(rdb), State: redisstate.New(rdb),
		Agents: actors.Agents{"fulfil": actors.Func(fulfil)},
		Grace:  20 * time.Second,
		Logger: supervision.Slog(slog.Default()),
	})
	if err != nil {
		return err
	}
	defer rt.Subscribe(func(e supervision.Event) {
		if b, ok := e.(supervision.EntryBuried); ok {
			slog.Warn("dead letter", "task_id", b.TaskID, "reason", b.Reason)
		}
	})()

	s := &server{tasks: rt.Client(), runtime: rt}
	srv := &http.Server{Handler: s.routes(), ReadHeaderTimeout: 5 * time.Second}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	listening(listener.Addr())

	g, stopped := errgroup.WithContext(ctx)
	g.Go(func() error { return rt.Run(context.WithoutCancel(ctx)) })
	g.Go(func() error {
		if err := srv.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	g.Go(func() error {
		<-stopped.Done()
		s.stopping.Store(true)
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 25*time.Second)
		defer cancel()
		return errors.Join(srv.Shutdown(end), rt.Drain(end))
	})
	return g.Wait()
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	redisAddr := cmp.Or(os.Getenv("REDIS_ADDR"), "localhost:6379")
	if err := run(ctx, redisAddr, cmp.Or(os.Getenv("ADDR"), ":8080"), func(a net.Addr) { slog.Info("listening", "addr", a) }); err != nil {
		slog.Error("stopped", "err", err)
		os.Exit(1)
	}
}
