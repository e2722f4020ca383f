package streambridge

import (
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// stillFailing is how often a loop that goes on failing says so again.
const stillFailing = 30 * time.Second

// monitor watches one loop: it keeps its Pulse, emits that it fails and that it recovered, and logs both without flooding.
type monitor struct {
	loop Loop
	log  hclog.Logger
	emit func(Event)

	mu     sync.Mutex
	pulse  Pulse
	logged time.Time
	tries  int // since the loop began to fail
}

// good notes a call that began at the time began and was answered.
func (m *monitor) good(began time.Time) {
	m.mu.Lock()
	failed, since, tries := m.pulse.Err != nil, m.pulse.Since, m.tries
	m.pulse = Pulse{Good: began}
	m.tries = 0
	m.mu.Unlock()
	if failed {
		after := time.Since(since)
		m.log.Info("works again", "loop", m.loop, "after", after.Round(time.Millisecond), "failed_calls", tries)
		m.emit(LoopRecovered{Loop: m.loop, After: after})
	}
}

// bad notes a call that failed.
func (m *monitor) bad(err error) {
	m.mu.Lock()
	now, first := time.Now(), m.pulse.Err == nil
	if first {
		m.pulse.Since = now
	}
	m.pulse.Err = err
	m.tries++
	say, tries, since := first || now.Sub(m.logged) >= stillFailing, m.tries, m.pulse.Since
	if say {
		m.logged = now
	}
	m.mu.Unlock()
	if say {
		m.log.Warn("calls to the stream fail, trying on", "loop", m.loop, "error", err, "failed_calls", tries,
			"since", since.Format(time.RFC3339))
	}
	if first {
		m.emit(LoopFailing{Loop: m.loop, Err: err})
	}
}

// read returns a copy.
func (m *monitor) read() Pulse {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pulse
}
