package redistest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// TB is the part of testing.TB that this package uses.
type TB interface {
	Helper()
	Name() string
	Cleanup(f func())
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// Option changes the [Config] of a server that a test starts.
type Option func(*Config)

// AOF turns the append-only file on; fsync is always, everysec or no.
func AOF(fsync string) Option {
	return func(c *Config) { c.AppendOnly, c.AppendFsync = true, fsync }
}

// Password makes the server ask for a password.
func Password(p string) Option { return func(c *Config) { c.Password = p } }

// MaxMemory limits the server's memory to a size such as 8mb; policy may be empty, which is noeviction.
func MaxMemory(size, policy string) Option {
	return func(c *Config) { c.MaxMemory, c.MaxMemoryPolicy = size, policy }
}

// Args adds arguments for redis-server.
func Args(args ...string) Option {
	return func(c *Config) { c.Args = append(c.Args, args...) }
}

// Start starts a server for one test, closed when the test ends. Without a redis-server on PATH the test fails and
// says how to get one: a test that skipped itself would look like one that passed.
func Start(tb TB, opts ...Option) *Server {
	tb.Helper()
	var cfg Config
	for _, o := range opts {
		o(&cfg)
	}
	s, err := Run(context.Background(), cfg)
	if err != nil {
		fatal(tb, err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Errorf("close redis-server: %v", err)
		}
	})
	return s
}

var shared struct {
	mu    sync.Mutex
	srv   *Server
	users int
}

// Shared is one server without persistence for all tests of a test binary, started by the first that asks. A test
// uses keys under a [Name] of its own, and neither changes the server's configuration, nor empties or stops it.
//
// On Linux it runs until the test binary ends, elsewhere until no running test uses it.
func Shared(tb TB) *Server {
	tb.Helper()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.srv == nil {
		s, err := Run(context.Background(), Config{})
		if err != nil {
			fatal(tb, err)
		}
		if diesWithParent {
			// Nobody will be there to remove the folder, and a server that persists nothing does not miss it.
			_ = os.RemoveAll(s.dir)
		}
		shared.srv = s
	}
	if !diesWithParent {
		shared.users++
		tb.Cleanup(func() {
			shared.mu.Lock()
			defer shared.mu.Unlock()
			if shared.users--; shared.users == 0 {
				_ = shared.srv.Close()
				shared.srv = nil
			}
		})
	}
	return shared.srv
}

// Name is a name for a stream or a prefix for keys: the test's own name and a random part, of letters, digits and
// dashes only. Each call returns another one.
func Name(tb TB) string {
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		}
		return '-'
	}, tb.Name())
	return fmt.Sprintf("%s-%08x", name, rand.Uint32())
}

// StartProxy starts a [Proxy] in front of target (host:port) for one test, closed when the test ends.
func StartProxy(tb TB, target string) *Proxy {
	tb.Helper()
	p, err := NewProxy(target)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	tb.Cleanup(func() {
		if err := p.Close(); err != nil {
			tb.Errorf("close the proxy: %v", err)
		}
	})
	return p
}

// Via makes a client of [Server.NewClient] connect through a proxy.
func Via(p *Proxy) func(*redis.Options) {
	return func(o *redis.Options) { o.Addr = p.Addr() }
}

func fatal(tb TB, err error) {
	tb.Helper()
	if errors.Is(err, ErrNoServer) {
		tb.Fatalf("this test needs a real Redis: %v; `make test` installs it", err)
	}
	tb.Fatalf("%v", err)
}
