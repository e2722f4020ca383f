package chatserver_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-run/weir/examples/triage/chatserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start starts a server and the official client for it.
func start(t *testing.T, opts ...chatserver.Option) (*chatserver.Server, openai.Client) {
	t.Helper()
	s, err := chatserver.Start(opts...)
	require.NoError(t, err)
	transport := &http.Transport{}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		require.NoError(t, s.Close())
	})
	return s, openai.NewClient(option.WithBaseURL(s.URL()), option.WithAPIKey("local"), option.WithMaxRetries(0),
		option.WithHTTPClient(&http.Client{Transport: transport}))
}

func ask(system, user string) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{
		Model:    "local",
		Messages: []openai.ChatCompletionMessageParamUnion{openai.SystemMessage(system), openai.UserMessage(user)},
	}
}

const draft = "Report: a/b-1\nIntent: stuck\nText: The worker waits for ever. It is idle.\n" +
	"Similar reports:\n- [c/d-2] waits too\n- [e-3] idle as well\n"

func TestChoice(t *testing.T) {
	_, client := start(t)
	const labels = "Sort it.\nAnswer with exactly one of: lost work, duplicate work, stuck, slow, other.\nBe quick."
	for text, want := range map[string]string{
		"a crash loses the pending entry":         "lost work",
		"Every job runs TWICE after the failover": "duplicate work",
		"the consumer is idle for ever":           "stuck",
		"throughput halved":                       "slow",
		"a pretty picture":                        "other",
		"":                                        "other",
	} {
		got, err := client.Chat.Completions.New(t.Context(), ask(labels, text))
		require.NoError(t, err)
		require.Equal(t, want, got.Choices[0].Message.Content, text)
		require.Equal(t, "stop", got.Choices[0].FinishReason)
		require.Positive(t, got.Usage.PromptTokens)
		require.Equal(t, got.Usage.PromptTokens+got.Usage.CompletionTokens, got.Usage.TotalTokens)
	}
}

func TestReplyCitesWhatThePromptGives(t *testing.T) {
	_, client := start(t)
	for name, test := range map[string]struct {
		prompt string
		want   []string
	}{
		"two":     {draft, []string{"report a/b-1", "The worker waits for ever.", `"stuck"`, "XPENDING", "Similar reports: c/d-2 and e-3."}},
		"one":     {"Report: r\n- [x-1] y\n", []string{"A similar report: x-1."}},
		"none":    {"Report: r\nIntent: docs\n", []string{"report r.", "We know of no similar report."}},
		"no form": {"hello", []string{"Thank you for the report."}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := client.Chat.Completions.New(t.Context(), ask("Draft a reply.", test.prompt))
			require.NoError(t, err)
			for _, want := range test.want {
				require.Contains(t, got.Choices[0].Message.Content, want)
			}
		})
	}
}

func TestStreamIsThePlainAnswerInPieces(t *testing.T) {
	s, client := start(t)
	plain, err := client.Chat.Completions.New(t.Context(), ask("Draft a reply.", draft))
	require.NoError(t, err)

	for _, withUsage := range []bool{false, true} {
		params := ask("Draft a reply.", draft)
		if withUsage {
			params.StreamOptions = openai.ChatCompletionStreamOptionsParam{IncludeUsage: param.NewOpt(true)}
		}
		stream := client.Chat.Completions.NewStreaming(t.Context(), params)
		var acc openai.ChatCompletionAccumulator
		chunks := 0
		for stream.Next() {
			chunks++
			require.True(t, acc.AddChunk(stream.Current()))
		}
		require.NoError(t, stream.Err())
		require.Equal(t, plain.ID, acc.ID, "the same answer has the same id")
		require.Equal(t, plain.Choices[0].Message.Content, acc.Choices[0].Message.Content)
		require.Equal(t, "stop", acc.Choices[0].FinishReason)
		require.Greater(t, chunks, 20)
		if withUsage {
			require.Equal(t, plain.Usage.TotalTokens, acc.Usage.TotalTokens)
		} else {
			require.Zero(t, acc.Usage.TotalTokens)
		}
	}
	stats := s.Stats()
	require.Equal(t, 3, stats.Calls)
	require.Zero(t, stats.Failed)
	require.EqualValues(t, 3*plain.Usage.CompletionTokens, stats.CompletionTokens)
	require.EqualValues(t, 3*plain.Usage.PromptTokens, stats.PromptTokens)
}

func TestFailures(t *testing.T) {
	for name, test := range map[string]struct {
		failure    chatserver.Failure
		status     int
		kind       string
		retryAfter string
	}{
		"rate limit":       {chatserver.Failure{Status: 429, RetryAfter: 1500 * time.Millisecond}, 429, "rate_limit_error", "2"},
		"overloaded":       {chatserver.Failure{Status: 503}, 503, "server_error", ""},
		"wrong key":        {chatserver.Failure{Status: 401}, 401, "invalid_request_error", ""},
		"zero means a 500": {chatserver.Failure{}, 500, "server_error", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s, client := start(t, chatserver.WithFailures(func(call int) *chatserver.Failure {
				if call == 1 {
					return &test.failure
				}
				return nil
			}))
			_, err := client.Chat.Completions.New(t.Context(), ask("", "hello"))
			var e *openai.Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, test.status, e.StatusCode)
			require.Equal(t, test.kind, e.Type)
			require.Equal(t, test.retryAfter, e.Response.Header.Get("Retry-After"))

			_, err = client.Chat.Completions.New(t.Context(), ask("", "hello"))
			require.NoError(t, err)
			require.Equal(t, 2, s.Stats().Calls)
			require.Equal(t, 1, s.Stats().Failed)
		})
	}
}

func TestCutStream(t *testing.T) {
	_, client := start(t, chatserver.WithFailures(func(int) *chatserver.Failure { return &chatserver.Failure{AfterTokens: 4} }))
	stream := client.Chat.Completions.NewStreaming(t.Context(), ask("", draft))
	var text strings.Builder
	for stream.Next() {
		text.WriteString(stream.Current().Choices[0].Delta.Content)
	}
	require.Error(t, stream.Err())
	require.Equal(t, "Thank you for the", text.String())

	_, err := client.Chat.Completions.New(t.Context(), ask("", draft))
	require.Error(t, err, "a call that is not streamed is cut too")
}

func TestBadRequests(t *testing.T) {
	s, _ := start(t)
	defer http.DefaultClient.CloseIdleConnections()
	for name, test := range map[string]struct {
		method, path, body string
		status             int
		want               string
	}{
		"not JSON":      {"POST", "/chat/completions", "{", 400, "read request"},
		"no model":      {"POST", "/chat/completions", `{"messages":[{"role":"user","content":"x"}]}`, 400, "model"},
		"no messages":   {"POST", "/chat/completions", `{"model":"m"}`, 400, "messages"},
		"too large":     {"POST", "/chat/completions", `{"model":"` + strings.Repeat("m", 1<<20) + `"}`, 400, "too large"},
		"wrong content": {"POST", "/chat/completions", `{"model":"m","messages":[{"role":"user","content":7}]}`, 400, "read request"},
		"other method":  {"GET", "/chat/completions", "", 405, ""},
		"other path":    {"POST", "/embeddings", "{}", 404, ""},
		"null content":  {"POST", "/chat/completions", `{"model":"m","messages":[{"role":"user","content":null}]}`, 200, "Thank you"},
		"parts": {
			"POST", "/chat/completions",
			`{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"Report: p"},{"type":"text","text":"-1"}]}]}`, 200, "p-1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), test.method, s.URL()+test.path, strings.NewReader(test.body))
			require.NoError(t, err)
			res, err := http.DefaultClient.Do(req)
			require.NoError(t, err)
			defer func() { require.NoError(t, res.Body.Close()) }()
			body, err := io.ReadAll(res.Body)
			require.NoError(t, err)
			require.Equal(t, test.status, res.StatusCode, "%s", body)
			require.Contains(t, string(body), test.want)
			if test.status == http.StatusBadRequest {
				require.True(t, json.Valid(body))
				require.True(t, bytes.HasPrefix(body, []byte(`{"error":`)))
			}
		})
	}
}

func TestCloseCutsCallsUnderWay(t *testing.T) {
	var arrived atomic.Bool
	waiting := make(chan struct{})
	s, client := start(t, chatserver.WithLatency(time.Hour, time.Hour), chatserver.WithFailures(func(int) *chatserver.Failure {
		if arrived.CompareAndSwap(false, true) {
			close(waiting)
		}
		return nil
	}))
	failed := make(chan error, 1)
	go func() {
		_, err := client.Chat.Completions.New(context.Background(), ask("", "hello"))
		failed <- err
	}()
	<-waiting
	require.NoError(t, s.Close())
	require.Error(t, <-failed)
	require.NoError(t, s.Close(), "a second Close is harmless")
	_, err := client.Chat.Completions.New(t.Context(), ask("", "hello"))
	require.Error(t, err)
}

func TestLatencyEndsWithTheCaller(t *testing.T) {
	_, client := start(t, chatserver.WithLatency(0, time.Hour))
	ctx, cancel := context.WithCancel(t.Context())
	stream := client.Chat.Completions.NewStreaming(ctx, ask("", draft))
	for stream.Next() {
		if stream.Current().Choices[0].Delta.Content != "" {
			cancel() // the next token would take an hour
		}
	}
	require.ErrorIs(t, stream.Err(), context.Canceled)
	cancel()
}
