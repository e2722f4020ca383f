package acceptance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
)

// fleet is workers under a restart loop: one that ends is replaced at once, as systemd or Kubernetes do.
type fleet struct {
	site   *site
	launch launcher
	cancel context.CancelFunc
	all    sync.WaitGroup

	mu      sync.Mutex
	current []*process
	deaths  int
	err     error
}

// fleet starts n workers. Names that are kept are those of a StatefulSet, fresh ones those of a Deployment.
func (s *site) fleet(n int, keepNames bool, extra ...string) *fleet {
	s.t.Helper()
	return s.fleetOf(n, keepNames, s.launch, extra...)
}

// launcher starts a worker without waiting for it.
type launcher func(name, consumer string, extra ...string) (*process, error)

// fleetOf is a fleet of workers that are started in another way.
func (s *site) fleetOf(n int, keepNames bool, launch launcher, extra ...string) *fleet {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	f := &fleet{site: s, launch: launch, cancel: cancel, current: make([]*process, n)}
	for i := range n {
		f.all.Go(func() { f.keep(ctx, i, keepNames, extra) })
	}
	s.t.Cleanup(func() { f.stop(s.t) })
	s.await(waitLong, "the fleet's first workers run", func() bool {
		ready := 0
		for _, p := range f.running() {
			select {
			case <-p.ready:
				ready++
			default:
			}
		}
		return ready == n || f.broken() != nil || f.count() > 0
	})
	return f
}

// keep is one place of the fleet.
func (f *fleet) keep(ctx context.Context, place int, keepNames bool, extra []string) {
	for life := 1; ctx.Err() == nil; life++ {
		name := fmt.Sprintf("w%d.%d", place+1, life)
		consumer := name
		if keepNames {
			consumer = fmt.Sprintf("w%d", place+1)
		}
		p, err := f.launch(name, consumer, extra...)
		if err != nil {
			f.fail(err)
			return
		}
		f.mu.Lock()
		f.current[place] = p
		f.mu.Unlock()
		select {
		case <-ctx.Done():
			if err := p.end(); err != nil {
				f.fail(err)
			}
		case <-p.gone:
			f.mu.Lock()
			f.deaths++
			f.mu.Unlock()
			if code := p.cmd.ProcessState.ExitCode(); code != -1 && code != 137 {
				f.fail(fmt.Errorf("%s ended with code %d:\n%s", name, code, p.tail(10)))
				return
			}
		}
	}
}

func (f *fleet) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = errors.Join(f.err, err)
}

func (f *fleet) broken() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// count is how many of its processes have died so far.
func (f *fleet) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.deaths
}

func (f *fleet) running() []*process {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []*process
	for _, p := range f.current {
		if p != nil && !p.ended() {
			out = append(out, p)
		}
	}
	return out
}

// kill ends one place's process with kill -9; its end counts as a death.
func (f *fleet) kill(place int) error {
	f.mu.Lock()
	p := f.current[place]
	f.mu.Unlock()
	if p == nil {
		return nil
	}
	return p.signal(os.Kill)
}

// stop ends the loop and its processes. Idempotent.
func (f *fleet) stop(t *testing.T) {
	t.Helper()
	f.cancel()
	f.all.Wait()
	if err := f.broken(); err != nil {
		t.Errorf("the fleet: %v", err)
	}
}
