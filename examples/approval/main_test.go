package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-run/weir/streambridge/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// site is the service under test; a second one on the same Redis is a restart.
type site struct {
	t      *testing.T
	base   string
	client *http.Client
	stop   func()
}

func start(t *testing.T, server *redistest.Server, bank *Bank, wait time.Duration) *site {
	ctx, cancel := context.WithCancel(t.Context())
	addr, ended := make(chan string, 1), make(chan error, 1)
	go func() {
		ended <- run(ctx, server.Addr(), "127.0.0.1:0", bank, wait, func(a net.Addr) { addr <- a.String() })
	}()
	return &site{
		t: t, base: "http://" + <-addr, client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}},
		stop: func() {
			cancel()
			require.NoError(t, <-ended)
		},
	}
}

func (s *site) call(method, path, body string) (int, string) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.base+path, strings.NewReader(body))
	require.NoError(s.t, err)
	resp, err := s.client.Do(req)
	require.NoError(s.t, err)
	defer resp.Body.Close()
	out, err := io.ReadAll(resp.Body)
	require.NoError(s.t, err)
	return resp.StatusCode, string(out)
}

func (s *site) result(order string) (text string) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		code, body := s.call("GET", "/refunds/"+order, "")
		text = body
		return code == http.StatusOK
	}, 30*time.Second, 20*time.Millisecond)
	return text
}

func (s *site) refund(order string) {
	s.t.Helper()
	code, body := s.call("POST", "/refunds", `{"Order":"`+order+`","Cents":500}`)
	require.Equal(s.t, http.StatusAccepted, code, body)
}

func TestDecisions(t *testing.T) {
	server := redistest.Start(t)
	bank := &Bank{paid: map[string]string{}}
	s := start(t, server, bank, time.Hour)
	for _, order := range []string{"yes", "no", "cli"} {
		s.refund(order)
	}
	code, _ := s.call("GET", "/refunds/yes", "")
	require.Equal(t, http.StatusAccepted, code, "it waits")
	code, _ = s.call("GET", "/refunds/nobody", "")
	require.Equal(t, http.StatusNotFound, code)
	s.stop()

	s = start(t, server, bank, time.Hour) // days later
	code, body := s.call("POST", "/refunds/yes/approve", `{"By":"ann"}`)
	require.Equal(t, http.StatusNoContent, code, body)
	code, _ = s.call("POST", "/refunds/yes/approve", `{"By":"bob"}`)
	require.Equal(t, http.StatusConflict, code, "the second is told")
	require.Equal(t, "approved by ann: receipt-500", s.result("yes"))

	code, _ = s.call("POST", "/refunds/no/reject", `{"By":"ann","Why":"too late"}`)
	require.Equal(t, http.StatusNoContent, code)
	require.Equal(t, "rejected by ann: too late", s.result("no"))
	code, _ = s.call("POST", "/refunds/no/approve", `{"By":"bob"}`)
	require.Equal(t, http.StatusConflict, code, "after its end")

	weir := filepath.Join(t.TempDir(), "weir")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", weir, "../../cmd/weir").CombinedOutput()
	require.NoError(t, err, "%s", out)
	send := func() (string, error) {
		out, err := exec.CommandContext(t.Context(), weir, "send", "cli", "--redis", server.URL(), "--name", "approve", "--payload", `{"By":"the terminal"}`).CombinedOutput()
		return string(out), err
	}
	said, err := send()
	require.NoError(t, err, said)
	require.Contains(t, said, "task cli has the message approve")
	require.Equal(t, "approved by the terminal: receipt-500", s.result("cli"))
	said, err = send()
	require.Error(t, err)
	require.Contains(t, said, "ended")
	require.Len(t, bank.paid, 2)
	s.stop()
}

func TestExpires(t *testing.T) {
	s := start(t, redistest.Start(t), &Bank{paid: map[string]string{}}, 300*time.Millisecond)
	s.refund("o-1")
	require.Equal(t, "expired", s.result("o-1"))
	code, _ := s.call("POST", "/refunds/o-1/approve", `{"By":"ann"}`)
	require.Equal(t, http.StatusConflict, code)
	s.stop()
}
