package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// report is the file under results/.
type report struct {
	Started     time.Time `json:"started"`
	Machine     machine   `json:"machine"`
	Concurrency int       `json:"concurrency"`
	PayloadSize int       `json:"payload_bytes"`
	Rounds      int       `json:"rounds"`
	Rows        []*line   `json:"rows"`
}

// line is a row with its rounds.
type line struct {
	Row      string  `json:"row"` // as -only names it
	Name     string  `json:"name"`
	Workload string  `json:"workload"`
	Median   float64 `json:"median_tasks_per_second"`
	// WeirRatio is Weir's median over this one's on the same workload; 0 without a Weir row.
	WeirRatio float64 `json:"weir_ratio,omitempty"`
	Rounds    []round `json:"rounds"`
}

func newReport(cfg config) *report {
	return &report{
		Started: time.Now().UTC(), Concurrency: cfg.concurrency, PayloadSize: payloadSize, Rounds: cfg.rounds,
	}
}

func (r *report) add(from row, name string, res round) {
	i := slices.IndexFunc(r.Rows, func(l *line) bool { return l.Row == from.name })
	if i < 0 {
		i = len(r.Rows)
		r.Rows = append(r.Rows, &line{Row: from.name, Name: name, Workload: from.workload})
	}
	r.Rows[i].Rounds = append(r.Rows[i].Rounds, res)
}

// summarize fills in medians and ratios.
func (r *report) summarize() {
	weir := map[string]float64{}
	for _, l := range r.Rows {
		rates := make([]float64, len(l.Rounds))
		for i, res := range l.Rounds {
			rates[i] = res.PerSec
		}
		l.Median = median(rates)
		if strings.HasPrefix(l.Row, "weir") {
			weir[l.Workload] = l.Median
		}
	}
	for _, l := range r.Rows {
		if l.Median > 0 {
			l.WeirRatio = weir[l.Workload] / l.Median
		}
	}
}

// median of an even number is the mean of the two in the middle; of none it is 0.
func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	v = slices.Sorted(slices.Values(v))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// table is the report for people.
func (r *report) table(w io.Writer) error {
	fmt.Fprintf(w, "%d cores (%s), redis-server %s, %s; concurrency %d, payload %d bytes, median of %d rounds\n\n",
		r.Machine.Cores, r.Machine.CPU, r.Machine.Redis, r.Machine.Go, r.Concurrency, r.PayloadSize, r.Rounds)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "workload\tlibrary\ttasks\ttasks/s\tslowest–fastest\thandled\tcalls\tWeir is")
	for _, l := range r.Rows {
		slow, fast := l.Median, l.Median
		var handled, calls int64
		for _, res := range l.Rounds {
			slow, fast = min(slow, res.PerSec), max(fast, res.PerSec)
			handled, calls = handled+res.Handled, calls+res.Calls
		}
		ratio := "–"
		if l.WeirRatio > 0 {
			ratio = fmt.Sprintf("%.2f×", l.WeirRatio)
		}
		fmt.Fprintf(tw, "%s\t%s\t%d × %d\t%.0f\t%.0f–%.0f\t%d\t%d\t%s\n",
			l.Workload, l.Name, len(l.Rounds), l.Rounds[0].Tasks, l.Median, slow, fast, handled, calls, ratio)
	}
	return tw.Flush()
}

func (r *report) write(path string) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the results: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("make the folder of the results: %w", err)
	}
	return os.WriteFile(path, append(b, '\n'), 0o644)
}
