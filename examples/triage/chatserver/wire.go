package chatserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// The protocol, as far as a chat needs it.
type (
	request struct {
		Model         string    `json:"model"`
		Messages      []message `json:"messages"`
		Stream        bool      `json:"stream"`
		StreamOptions struct {
			IncludeUsage bool `json:"include_usage"`
		} `json:"stream_options"`
	}
	message struct {
		Role    string `json:"role,omitempty"`
		Content string `json:"content,omitempty"`
	}
	completion struct {
		ID      string   `json:"id"`
		Object  string   `json:"object"`
		Created int64    `json:"created"`
		Model   string   `json:"model"`
		Choices []choice `json:"choices"`
		Usage   usage    `json:"usage"`
	}
	chunk struct {
		ID      string   `json:"id"`
		Object  string   `json:"object"`
		Created int64    `json:"created"`
		Model   string   `json:"model"`
		Choices []choice `json:"choices"`
		Usage   *usage   `json:"usage,omitempty"`
	}
	choice struct {
		Index        int      `json:"index"`
		Message      *message `json:"message,omitempty"`
		Delta        *message `json:"delta,omitempty"`
		FinishReason *string  `json:"finish_reason"`
	}
	usage struct {
		PromptTokens     int `json:"prompt_tokens"`
		CompletionTokens int `json:"completion_tokens"`
		TotalTokens      int `json:"total_tokens"`
	}
)

// UnmarshalJSON reads a message whose content is a text, null or a list of parts.
func (m *message) UnmarshalJSON(data []byte) error {
	var raw struct {
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
	}
	if err := json.Unmarshal(data, &raw); err != nil {
		return err
	}
	m.Role, m.Content = raw.Role, ""
	if !bytes.HasPrefix(raw.Content, []byte("[")) {
		if len(raw.Content) == 0 {
			return nil
		}
		return json.Unmarshal(raw.Content, &m.Content)
	}
	var parts []struct {
		Text string `json:"text"`
	}
	if err := json.Unmarshal(raw.Content, &parts); err != nil {
		return err
	}
	for _, p := range parts {
		m.Content += p.Text
	}
	return nil
}

func readRequest(body io.Reader) (request, error) {
	var req request
	if err := json.NewDecoder(body).Decode(&req); err != nil {
		return req, fmt.Errorf("read request: %w", err)
	}
	switch {
	case req.Model == "":
		return req, errNoModel
	case len(req.Messages) == 0:
		return req, errNoMessages
	}
	return req, nil
}

// tokens cuts text before every word. Joined they are the text again; a real model cuts finer.
func tokens(text string) []string {
	var all []string
	for text != "" {
		start := len(text) - len(strings.TrimLeft(text, " \n\t"))
		end := len(text)
		if i := strings.IndexAny(text[start:], " \n\t"); i >= 0 {
			end = start + i
		}
		all = append(all, text[:end])
		text = text[end:]
	}
	return all
}

func promptTokens(messages []message) int {
	n := 0
	for _, m := range messages {
		n += len(tokens(m.Content))
	}
	return n
}
