package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-run/weir/streambridge/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTheService(t *testing.T) {
	server := redistest.Start(t)
	ctx, stop := context.WithCancel(t.Context())
	addr, ended := make(chan string, 1), make(chan error, 1)
	go func() {
		ended <- run(ctx, server.Addr(), "127.0.0.1:0", func(a net.Addr) { addr <- a.String() })
	}()
	base := "http://" + <-addr
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	get := func(path string) (int, string) {
		resp, err := client.Get(base + path)
		require.NoError(t, err)
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, string(body)
	}
	post := func(id, body string) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, base+"/orders", strings.NewReader(body))
		require.NoError(t, err)
		req.Header.Set("X-Event-Id", id)
		resp, err := client.Do(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		out, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, string(out)
	}
	require.Eventually(t, func() bool { code, _ := get("/readyz"); return code == http.StatusOK }, 10*time.Second, 10*time.Millisecond)

	code, body := post("e-1", `{"Item":"tea"}`)
	require.Equal(t, http.StatusAccepted, code)
	require.JSONEq(t, `{"id":"e-1","known":false}`, body)
	code, body = post("e-1", `{"Item":"tea"}`)
	require.Equal(t, http.StatusAccepted, code, "a webhook that comes twice")
	require.JSONEq(t, `{"id":"e-1","known":true}`, body)
	code, _ = post("e-1", `{"Item":"coffee"}`)
	require.Equal(t, http.StatusConflict, code)
	code, _ = post("e-2", `not JSON`)
	require.Equal(t, http.StatusBadRequest, code)

	code, body = get("/orders/e-1")
	require.Equal(t, http.StatusOK, code)
	require.Equal(t, "tea is on shelf 7", body)
	code, _ = get("/orders/nobody")
	require.Equal(t, http.StatusNotFound, code)
	code, _ = get("/livez")
	require.Equal(t, http.StatusOK, code)

	stop()
	require.NoError(t, <-ended)
}
