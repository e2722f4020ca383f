package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/weir-run/weir/streambridge"
)

// prober is what the health endpoints ask: a runtime.
type prober interface {
	Live() error
	Ready() error
	Gate() streambridge.Gate
}

// healthServer answers /livez and /readyz. A nil one answers nothing.
type healthServer struct {
	http   *http.Server
	addr   string
	served chan error
}

// startHealth listens at once, so that an address in use is an error at start; "" starts nothing.
func startHealth(addr string, p prober) (*healthServer, error) {
	if addr == "" {
		return nil, nil
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen for health checks: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", probe(p.Live, func() string { return "ok" }))
	mux.HandleFunc("GET /readyz", probe(p.Ready, func() string { return readiness(p.Gate()) }))
	s := &healthServer{
		http: &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, WriteTimeout: 10 * time.Second},
		addr: l.Addr().String(), served: make(chan error, 1),
	}
	go func() { s.served <- s.http.Serve(l) }()
	return s, nil
}

// readiness is what a ready node says: behind a shut gate it is ready, and works off what is there.
func readiness(g streambridge.Gate) string {
	if g.State == streambridge.GateIsOpen {
		return "ok"
	}
	return fmt.Sprintf("ok, gate %s: %s", g.State, g.Reason)
}

func probe(ask func() error, fine func() string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		if err := ask(); err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprintln(w, err)
			return
		}
		fmt.Fprintln(w, fine())
	}
}

func (s *healthServer) address() string {
	if s == nil {
		return ""
	}
	return s.addr
}

// close stops it, after the runtime: until then it says that it drains.
func (s *healthServer) close(ctx context.Context) error {
	if s == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if err := s.http.Shutdown(ctx); err != nil {
		_ = s.http.Close()
	}
	if err := <-s.served; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve health checks: %w", err)
	}
	return nil
}
