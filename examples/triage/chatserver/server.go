// Package chatserver is a chat model for machines without one: a local HTTP server that speaks the part of the
// OpenAI protocol that a chat needs (POST /v1/chat/completions, plain and streamed as server-sent events, usage
// counts, errors in the provider's shape, 429 with Retry-After).
//
// Its answers are computed from the words of the prompt (answer.go). The same prompt always has the same answer, so
// a program that uses it can be tested, and a reader can tell a replayed answer from a new one.
package chatserver

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// maxBody is the largest request that is read.
const maxBody = 1 << 20

// Stats counts what the server did since it started.
type Stats struct {
	Calls            int // requests for a completion, the failed ones among them
	Failed           int // calls that a Failure answered or cut short
	PromptTokens     int
	CompletionTokens int
}

// Failure says how a call fails.
type Failure struct {
	Status     int           // of the answer; default 500; ignored when AfterTokens > 0
	RetryAfter time.Duration // sent as Retry-After, rounded up to whole seconds; 0: not sent
	// AfterTokens > 0 lets a streamed answer begin and cuts the connection after so many tokens, as a provider
	// does that is restarted. A call that is not streamed is cut before its first byte.
	AfterTokens int
}

// Option changes what [Start] starts.
type Option func(*Server)

// WithLatency makes the server think: first before it answers, then each before every further token of a streamed
// answer.
func WithLatency(first, each time.Duration) Option {
	return func(s *Server) { s.first, s.each = first, each }
}

// WithFailures asks fail about every call, which are numbered from 1 in order of arrival; nil lets the call pass.
// Calls arrive at once, so fail must be safe for concurrent use.
func WithFailures(fail func(call int) *Failure) Option {
	return func(s *Server) { s.fail = fail }
}

// Server is a running chat server.
type Server struct {
	first, each time.Duration
	fail        func(call int) *Failure

	url    string
	http   *http.Server
	cancel context.CancelFunc
	served chan struct{}
	conns  sync.WaitGroup // each connection has a goroutine, in which its calls run

	mu    sync.Mutex
	stats Stats
}

// Start listens on a free port of the loopback interface and serves until [Server.Close].
func Start(opts ...Option) (*Server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start chat server: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &Server{
		url:    "http://" + l.Addr().String() + "/v1",
		cancel: cancel,
		served: make(chan struct{}),
	}
	for _, opt := range opts {
		opt(s)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/chat/completions", s.complete)
	s.http = &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: 10 * time.Second,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ConnState: func(_ net.Conn, state http.ConnState) {
			switch state {
			case http.StateNew: // reported by Serve itself, so never after it returned
				s.conns.Add(1)
			case http.StateClosed:
				s.conns.Done()
			}
		},
	}
	go func() {
		defer close(s.served)
		_ = s.http.Serve(l) // returns when Close closes it
	}()
	return s, nil
}

// URL is the base URL for a client: what OPENAI_BASE_URL would be set to.
func (s *Server) URL() string { return s.url }

// Stats returns the counts so far.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats
}

// Close stops the server: calls under way are cut, and no goroutine of it is left when Close returns. It can be
// called more than once.
func (s *Server) Close() error {
	s.cancel()
	err := s.http.Close()
	<-s.served
	s.conns.Wait()
	if err != nil {
		return fmt.Errorf("close chat server: %w", err)
	}
	return nil
}

func (s *Server) count(add func(*Stats)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	add(&s.stats)
}

func (s *Server) complete(w http.ResponseWriter, r *http.Request) {
	call := 0
	s.count(func(st *Stats) { st.Calls++; call = st.Calls })

	var failure *Failure
	if s.fail != nil {
		failure = s.fail(call)
	}
	if failure != nil {
		s.count(func(st *Stats) { st.Failed++ })
		if failure.AfterTokens <= 0 {
			writeFailure(w, failure)
			return
		}
	}
	req, err := readRequest(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		writeError(w, http.StatusBadRequest, "invalid_request_error", err.Error())
		return
	}
	if !sleep(r.Context(), s.first) {
		return
	}
	text := answer(req.Messages)
	reply := completion{
		ID:      "chatcmpl-" + digest(req.Model, text),
		Created: time.Now().Unix(),
		Model:   req.Model,
		Usage:   usage{PromptTokens: promptTokens(req.Messages), CompletionTokens: len(tokens(text))},
	}
	reply.Usage.TotalTokens = reply.Usage.PromptTokens + reply.Usage.CompletionTokens
	s.count(func(st *Stats) {
		st.PromptTokens += reply.Usage.PromptTokens
		st.CompletionTokens += reply.Usage.CompletionTokens
	})
	if req.Stream {
		s.stream(w, r, req, reply, text, failure)
		return
	}
	if failure != nil {
		panic(http.ErrAbortHandler) // net/http's way to cut a connection
	}
	reply.Object = "chat.completion"
	reply.Choices = []choice{{Message: &message{Role: "assistant", Content: text}, FinishReason: new("stop")}}
	writeJSON(w, http.StatusOK, reply)
}

// stream sends text token by token: a chunk with the role, one a token, one with the reason of the end, on request
// one with the usage, and the mark [DONE].
func (s *Server) stream(w http.ResponseWriter, r *http.Request, req request, reply completion, text string, failure *Failure) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-cache")
	flush := http.NewResponseController(w).Flush
	send := func(choices []choice, u *usage) bool {
		data, err := json.Marshal(chunk{
			ID: reply.ID, Object: "chat.completion.chunk", Created: reply.Created, Model: reply.Model,
			Choices: choices, Usage: u,
		})
		if err != nil {
			return false
		}
		_, err = fmt.Fprintf(w, "data: %s\n\n", data)
		return err == nil && flush() == nil
	}
	if !send([]choice{{Delta: &message{Role: "assistant"}}}, nil) {
		return
	}
	for n, token := range tokens(text) {
		if failure != nil && n == failure.AfterTokens {
			break
		}
		if n > 0 && !sleep(r.Context(), s.each) {
			return
		}
		if !send([]choice{{Delta: &message{Content: token}}}, nil) {
			return
		}
	}
	if failure != nil {
		panic(http.ErrAbortHandler)
	}
	ok := send([]choice{{Delta: &message{}, FinishReason: new("stop")}}, nil)
	if ok && req.StreamOptions.IncludeUsage {
		ok = send([]choice{}, &reply.Usage)
	}
	if ok {
		_, _ = fmt.Fprint(w, "data: [DONE]\n\n")
	}
}

// sleep waits for d; it is false when ctx ended first: the client is gone, or the server closes.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func writeFailure(w http.ResponseWriter, f *Failure) {
	if f.RetryAfter > 0 {
		seconds := (f.RetryAfter + time.Second - 1) / time.Second
		w.Header().Set("Retry-After", strconv.Itoa(int(seconds)))
	}
	status := cmp.Or(f.Status, http.StatusInternalServerError)
	kind := "server_error"
	switch {
	case status == http.StatusTooManyRequests:
		kind = "rate_limit_error"
	case status < http.StatusInternalServerError:
		kind = "invalid_request_error"
	}
	writeError(w, status, kind, "asked to fail: "+http.StatusText(status))
}

func writeError(w http.ResponseWriter, status int, kind, text string) {
	writeJSON(w, status, map[string]any{
		"error": map[string]any{"message": text, "type": kind, "param": nil, "code": nil},
	})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client is gone: nobody to tell
}

func digest(parts ...string) string {
	h := fnv.New64a()
	for _, p := range parts {
		_, _ = h.Write([]byte(p))
		_, _ = h.Write([]byte{0})
	}
	return strconv.FormatUint(h.Sum64(), 36)
}

var (
	errNoModel    = errors.New("you must provide a model parameter")
	errNoMessages = errors.New("messages must not be empty")
)
