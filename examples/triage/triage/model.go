package triage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
)

// DefaultModel is asked when no model is named.
const DefaultModel = "gpt-4o-mini"

// IntentOther is the intent of a report that no other one fits.
const IntentOther = "other"

// Intents are the labels that a report can get, the last one being [IntentOther].
var Intents = []string{
	"lost work", "duplicate work", "stuck", "crash", "slow", "memory", "schedule", "rate limit", "replay", "shutdown",
	"docs", "feature", IntentOther,
}

// Model asks a chat model through the official client. It is safe for concurrent use.
//
// The client does not retry: the runtime does, so that a refused call is charged where the operator can see it, and a
// Retry-After parks the task instead of holding a slot.
type Model struct {
	client    openai.Client
	name      string
	transport *http.Transport
}

// NewModel returns a model called modelName ("" for [DefaultModel]) at baseURL, for instance
// "https://api.openai.com/v1"; "" leaves it to the client: OPENAI_BASE_URL, else the provider itself. An empty key
// leaves it to OPENAI_API_KEY.
func NewModel(baseURL, key, modelName string) *Model {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	// Hundreds of tasks ask at once, and the default of 2 would open a connection for nearly every call.
	transport.MaxIdleConnsPerHost = 64
	opts := []option.RequestOption{
		option.WithMaxRetries(0),
		option.WithHTTPClient(&http.Client{Transport: transport}),
	}
	if baseURL != "" {
		opts = append(opts, option.WithBaseURL(baseURL))
	}
	if key != "" {
		opts = append(opts, option.WithAPIKey(key))
	}
	return &Model{client: openai.NewClient(opts...), name: cmp.Or(modelName, DefaultModel), transport: transport}
}

// Close closes the idle connections. The model can be used again.
func (m *Model) Close() { m.transport.CloseIdleConnections() }

// Intent asks which of [Intents] fits the report.
func (m *Model) Intent(ctx context.Context, r Report) (string, error) {
	got, err := m.client.Chat.Completions.New(ctx, openai.ChatCompletionNewParams{
		Model: m.name,
		Messages: []openai.ChatCompletionMessageParamUnion{
			openai.SystemMessage("You sort bug reports about queues and agent runtimes by what went wrong for the user. " +
				"Answer with exactly one of: " + strings.Join(Intents, ", ") + "."),
			openai.UserMessage(r.Text),
		},
	})
	if err != nil {
		return "", fmt.Errorf("ask for the intent of %q: %w", r.ID, err)
	}
	if len(got.Choices) == 0 {
		return "", fmt.Errorf("ask for the intent of %q: %w", r.ID, errNoAnswer)
	}
	return readIntent(got.Choices[0].Message.Content), nil
}

// readIntent finds the label in what a model said: models like to add a full stop, quotes or a sentence. An answer
// that names none or several labels is IntentOther: asking again would most likely give the same answer.
func readIntent(said string) string {
	said = strings.ToLower(strings.Trim(said, " .\"'`\n\t"))
	if slices.Contains(Intents, said) {
		return said
	}
	var named []string
	for _, intent := range Intents {
		if strings.Contains(said, intent) {
			named = append(named, intent)
		}
	}
	if len(named) == 1 {
		return named[0]
	}
	return IntentOther
}

// Draft asks for a reply to the report that cites the similar ones, and passes every piece of it to token as it
// arrives (nil: nobody listens). An answer that ends early is an error, never a short reply; the pieces that token
// saw by then are void.
func (m *Model) Draft(ctx context.Context, r Report, intent string, similar []Match, token func(string)) (string, error) {
	stream := m.client.Chat.Completions.NewStreaming(ctx, openai.ChatCompletionNewParams{
		Model: m.name,
		Messages: []openai.ChatCompletionMessageParamUnion{
			openai.SystemMessage("You draft a maintainer's first reply to a bug report: short, friendly and concrete. " +
				"Cite similar reports by the id in brackets, and no others."),
			openai.UserMessage(draftPrompt(r, intent, similar)),
		},
		StreamOptions: openai.ChatCompletionStreamOptionsParam{IncludeUsage: param.NewOpt(true)},
	})
	defer stream.Close()
	var (
		reply strings.Builder
		end   string
	)
	for stream.Next() {
		for _, choice := range stream.Current().Choices { // the last chunk has the usage, and no choice
			if piece := choice.Delta.Content; piece != "" {
				reply.WriteString(piece)
				if token != nil {
					token(piece)
				}
			}
			end = cmp.Or(string(choice.FinishReason), end)
		}
	}
	if err := stream.Err(); err != nil {
		return "", fmt.Errorf("draft a reply to %q: %w", r.ID, err)
	}
	switch {
	case end == "": // the connection ended between two events: the client takes that for the end
		return "", fmt.Errorf("draft a reply to %q: %w after %d bytes", r.ID, errCut, reply.Len())
	case end != "stop":
		return "", fmt.Errorf("draft a reply to %q: the model ended with %q after %d bytes", r.ID, end, reply.Len())
	case reply.Len() == 0:
		return "", fmt.Errorf("draft a reply to %q: %w", r.ID, errNoAnswer)
	}
	return reply.String(), nil
}

func draftPrompt(r Report, intent string, similar []Match) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Report: %s\nIntent: %s\nText: %s\n", r.ID, intent, oneLine(r.Text))
	if len(similar) == 0 {
		return b.String()
	}
	b.WriteString("Similar reports:\n")
	for _, s := range similar {
		fmt.Fprintf(&b, "- [%s] %s\n", s.ID, oneLine(s.Text))
	}
	return b.String()
}

// oneLine keeps a report's text from posing as a further line of the prompt.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

var (
	errNoAnswer = errors.New("the model gave no answer")
	errCut      = errors.New("the stream ended before the answer did")
)
