package acceptance

import (
	"encoding/json"
	"slices"
	"sync"
	"time"
)

// line is one line that a process printed on stdout: an event of `weir worker --json`, or of a probe.
type line struct {
	At      time.Time `json:"-"` // when it was read here
	Process string    `json:"-"`

	Event       string `json:"event"`
	Consumer    string `json:"consumer"`
	Incarnation string `json:"incarnation"`
	Health      string `json:"health"`

	// A probe's.
	Task    string `json:"task"`
	Unit    string `json:"unit"`
	Type    string `json:"type"`
	Run     string `json:"run"`
	Cause   string `json:"cause"`
	Outcome string `json:"outcome"`
	Count   int64  `json:"count"`
	On      bool   `json:"on"`
	Attempt int64  `json:"attempt"`
	Clock   int64  `json:"clock"` // the process's own, ns: one machine, one clock

	// The totals of a worker that has stopped.
	Succeeded   int64 `json:"succeeded"`
	Interrupted int64 `json:"interrupted"`
	Lost        int64 `json:"lost"`
}

// journal is what all processes of a site have told, in the order of arrival.
type journal struct {
	mu    sync.Mutex
	lines []line
}

// add takes a line as it was printed.
func (j *journal) add(process string, text []byte) (line, error) {
	var l line
	if err := json.Unmarshal(text, &l); err != nil {
		return l, err
	}
	l.At, l.Process = time.Now(), process
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, l)
	return l, nil
}

// all are the lines that f lets through.
func (j *journal) all(f func(line) bool) []line {
	j.mu.Lock()
	defer j.mu.Unlock()
	var out []line
	for _, l := range j.lines {
		if f(l) {
			out = append(out, l)
		}
	}
	return out
}

func (j *journal) count(f func(line) bool) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	n := 0
	for _, l := range j.lines {
		if f(l) {
			n++
		}
	}
	return n
}

// event lets through lines of one event, of some processes where any are named.
func event(name string, processes ...string) func(line) bool {
	return func(l line) bool {
		return l.Event == name && (len(processes) == 0 || slices.Contains(processes, l.Process))
	}
}
