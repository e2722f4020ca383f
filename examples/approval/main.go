// Approval pays refunds that a person has approved. A request waits for days if it must: it holds no goroutine, no slot and
// no entry meanwhile, and the service may be restarted as often as you like.
//
//	POST /refunds               {"Order":"o-1","Cents":500}; the order is the task's id
//	GET  /refunds/{id}          the answer, or 202 while it waits
//	POST /refunds/{id}/approve  {"By":"ann"}
//	POST /refunds/{id}/reject   {"By":"ann","Why":"too late"}
//
// or, from a terminal: weir send o-1 --name approve --payload '{"By":"ann"}'
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
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/actors/redisstate"
	"github.com/weir-run/weir/streambridge/redisstream"
	"github.com/weir-run/weir/supervision"
)

type (
	// Refund is the request.
	Refund struct {
		Order string
		Cents int
	}
	// Approval and Rejection are the messages that end its wait.
	Approval  struct{ By string }
	Rejection struct{ By, Why string }
)

// Bank pays at most once under a key, and can be asked about it.
type Bank struct {
	mu   sync.Mutex
	paid map[string]string
}

// Pay moves the money.
func (b *Bank) Pay(key string, cents int) (receipt string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	receipt = fmt.Sprintf("receipt-%d", cents)
	b.paid[key] = receipt
	return receipt, nil
}

// Find says what was paid under a key.
func (b *Bank) Find(_ context.Context, key string) (receipt string, found bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	receipt, found = b.paid[key]
	return receipt, found, nil
}

type refunds struct {
	bank *Bank
	wait time.Duration
}

// handle runs from the top after each wait and each crash; what is done by then, it does not do again.
func (r *refunds) handle(c *actors.Context, m Refund) (string, error) {
	yes, no := actors.Expect[Approval]("approve"), actors.Expect[Rejection]("reject")
	err := actors.First(c, "decision", r.wait, yes, no)
	switch {
	case errors.Is(err, actors.ErrTimeout):
		return "expired", nil
	case err != nil: // parked, among others: back soon
		return "", err
	}
	if rejection, ok := no.Get(); ok {
		return fmt.Sprintf("rejected by %s: %s", rejection.By, rejection.Why), nil
	}
	receipt, err := actors.Step(c, "pay", func(s actors.StepContext) (string, error) {
		return r.bank.Pay(s.Key, m.Cents)
	}, actors.Verify(r.bank.Find))
	if err != nil {
		return "", err
	}
	approval, _ := yes.Get()
	return fmt.Sprintf("approved by %s: %s", approval.By, receipt), nil
}

type server struct{ tasks *actors.Client }

func (s *server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /refunds", s.request)
	mux.HandleFunc("GET /refunds/{id}", s.result)
	mux.HandleFunc("POST /refunds/{id}/approve", answer[Approval](s, "approve"))
	mux.HandleFunc("POST /refunds/{id}/reject", answer[Rejection](s, "reject"))
	return mux
}

func (s *server) request(w http.ResponseWriter, r *http.Request) {
	var m Refund
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<16)).Decode(&m); err != nil || m.Order == "" {
		http.Error(w, "a refund needs an order", http.StatusBadRequest)
		return
	}
	_, err := s.tasks.Submit(r.Context(), actors.NewTask{Type: "refund", ID: m.Order, Payload: m})
	switch {
	case errors.Is(err, actors.ErrConflict):
		http.Error(w, "the order has another refund", http.StatusConflict)
	case err != nil:
		http.Error(w, "try again", http.StatusBadGateway)
	default:
		w.WriteHeader(http.StatusAccepted)
	}
}

func (s *server) result(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), time.Second)
	defer cancel()
	text, err := actors.Result[string](ctx, s.tasks.Task(r.PathValue("id")))
	switch {
	case errors.Is(err, actors.ErrNoTask):
		http.NotFound(w, r)
	case errors.Is(err, actors.ErrNotEnded):
		w.WriteHeader(http.StatusAccepted)
	case err != nil:
		http.Error(w, err.Error(), http.StatusBadGateway)
	default:
		_, _ = w.Write([]byte(text))
	}
}

// answer sends a person's decision. The first of a kind counts; who comes second, or too late, is told.
func answer[M any](s *server, name string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var m M
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<16)).Decode(&m); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		err := s.tasks.Task(r.PathValue("id")).Send(r.Context(), name, m)
		switch {
		case errors.Is(err, actors.ErrAnswered), errors.Is(err, actors.ErrEnded):
			http.Error(w, "decided already", http.StatusConflict)
		case err != nil:
			http.Error(w, "try again", http.StatusBadGateway)
		default:
			w.WriteHeader(http.StatusNoContent)
		}
	}
}

// run serves until ctx ends. A refund that nobody decides expires after wait. listening is told the address.
func run(ctx context.Context, redisAddr, addr string, bank *Bank, wait time.Duration, listening func(net.Addr)) error {
	rdb := redis.NewClient(&redis.Options{Addr: redisAddr})
	defer rdb.Close()
	agent := &refunds{bank: bank, wait: wait}
	rt, err := supervision.New(supervision.Config{
		Stream: redisstream.New(rdb), State: redisstate.New(rdb),
		Agents: actors.Agents{"refund": actors.Func(agent.handle)},
		Logger: supervision.Slog(slog.Default()),
	})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	listening(listener.Addr())
	srv := &http.Server{Handler: (&server{rt.Client()}).routes(), ReadHeaderTimeout: 5 * time.Second}
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
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		return errors.Join(srv.Shutdown(end), rt.Drain(end))
	})
	return g.Wait()
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	redisAddr, addr := cmp.Or(os.Getenv("REDIS_ADDR"), "localhost:6379"), cmp.Or(os.Getenv("ADDR"), ":8080")
	bank := &Bank{paid: map[string]string{}}
	if err := run(ctx, redisAddr, addr, bank, 24*time.Hour, func(a net.Addr) { slog.Info("listening", "addr", a) }); err != nil {
		slog.Error("stopped", "err", err)
		os.Exit(1)
	}
}
