package triage

import (
	"bufio"
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
)

// Embedded, so that a program that runs the example needs no file beside it.
//
//go:embed reports.jsonl
var reportsJSONL []byte

// Report is a public bug report: the message that the triage agent handles.
type Report struct {
	ID      string `json:"id"`
	Source  string `json:"source"`
	Project string `json:"project"`
	Number  int    `json:"number"`
	Area    string `json:"area"`
	Text    string `json:"text"`
}

// Reports returns the embedded reports, in the order of the file. Each call returns a slice of its own.
func Reports() ([]Report, error) {
	return parseReports(reportsJSONL)
}

func parseReports(jsonl []byte) ([]Report, error) {
	var (
		reports []Report
		seen    = map[string]int{}
		lines   = bufio.NewScanner(bytes.NewReader(jsonl))
	)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		var r Report
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return nil, fmt.Errorf("read report in line %d: %w", n, err)
		}
		if r.ID == "" || r.Text == "" {
			return nil, fmt.Errorf("report in line %d needs an id and a text", n)
		}
		// The id becomes the task's id: two reports with one id would be one task, and the second a conflict.
		if first, ok := seen[r.ID]; ok {
			return nil, fmt.Errorf("report %q stands in line %d and again in line %d", r.ID, first, n)
		}
		seen[r.ID] = n
		reports = append(reports, r)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read reports: %w", err)
	}
	return reports, nil
}
