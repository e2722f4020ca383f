package supervision

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
)

// storeHealth knows whether the agents can begin and commit. The bridge's loops cannot tell: a server whose memory is full
// hands out entries, takes beats and acknowledgements, and refuses every Begin.
type storeHealth struct {
	log     hclog.Logger
	failing atomic.Bool // read first: a store that answers costs a load

	mu          sync.Mutex
	err         error
	since, last time.Time
	logged      time.Time
}

const (
	// storeFailsAgain is longer than the pause between two tries of one call: after that nobody is trying any more.
	storeFailsAgain = 15 * time.Second
	// storeSaysAgain is how often a store that goes on failing is logged.
	storeSaysAgain = 30 * time.Second
)

// heard notes that a call was answered (nil) or failed.
func (s *storeHealth) heard(err error) {
	if err == nil && !s.failing.Load() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if err == nil {
		if s.err != nil {
			s.log.Info("the state store works again", "after", now.Sub(s.since).Round(time.Millisecond))
		}
		s.err = nil
		s.failing.Store(false)
		return
	}
	if s.err == nil || now.Sub(s.last) > storeFailsAgain {
		s.since, s.logged = now, time.Time{}
	}
	if now.Sub(s.logged) >= storeSaysAgain {
		s.logged = now
		s.log.Warn("the state store refuses calls, trying on", "err", err)
	}
	s.err, s.last = err, now
	s.failing.Store(true)
}

// ready says why no work can begin or end at the time now, or nil.
func (s *storeHealth) ready(now time.Time) error {
	if !s.failing.Load() {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil || now.Sub(s.last) > storeFailsAgain {
		return nil
	}
	return fmt.Errorf("the state store fails since %s: %w", s.since.Format(time.TimeOnly), s.err)
}
