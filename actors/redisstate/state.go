package redisstate

import (
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/messages"
)

var _ actors.State = (*State)(nil)

// State keeps what tasks have done in Redis. Its methods may be called from any number of goroutines.
type State struct {
	rdb   redis.UniversalClient
	batch batcher

	bound atomic.Pointer[binding]
}

// binding is what follows from the names. It never changes once it is there.
type binding struct {
	names  actors.Names
	keys   messages.Keys
	group  string
	fields messages.FieldNames
}

// New makes a State on a client, which stays the caller's and is never closed here. It does no I/O and starts nothing;
// Bind names its group.
//
// The client's ReadTimeout bounds how long a call waits for a server that does not answer. Its own retries are not used.
func New(rdb redis.UniversalClient) *State {
	return &State{rdb: rdb, batch: batcher{rdb: rdb}}
}

// Bind names the group this State serves; no I/O. It refuses names that cannot be keys, and other names than before
// (the consumer's does not matter here).
func (s *State) Bind(names actors.Names) error {
	names = names.WithDefaults()
	names.Consumer = ""
	if err := names.Validate(); err != nil {
		return err
	}
	keys, err := messages.NewKeys(names)
	if err != nil {
		return err
	}
	s.bound.CompareAndSwap(nil, &binding{names: names, keys: keys, group: names.Group, fields: names.Fields})
	if was := s.bound.Load().names; was != names {
		return fmt.Errorf("state of stream %q, group %q cannot serve stream %q, group %q (or other field names) too: make another State",
			was.Stream, was.Group, names.Stream, names.Group)
	}
	return nil
}

// Close waits until what was handed over has been answered; later calls get ErrClosed. Idempotent.
func (s *State) Close() error {
	s.batch.close()
	return nil
}

var errUnbound = errors.New("the state store is not bound to a group: call Bind first")

func (s *State) binding() (*binding, error) {
	b := s.bound.Load()
	if b == nil {
		return nil, errUnbound
	}
	return b, nil
}

// forever is a time to live that nobody outlives; Redis has none for "keep it" where a script must set one.
const forever = 100 * 365 * 24 * time.Hour

// ttlMS is a time to live in ms: 0 (keep it) for what is not positive.
func ttlMS(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return max(1, d.Milliseconds())
}

// number is how a script gets one.
func number[N int | int64](n N) string { return strconv.FormatInt(int64(n), 10) }

// unitPrefix stands before the fields of a unit.
func unitPrefix(unit string) string {
	if unit == "" {
		return ""
	}
	return messages.Escape(unit) + "/"
}

// maxError is how many bytes of an error's text are kept with its unit.
const maxError = 16 << 10

// clip cuts text that is for people.
func clip(s string) string {
	if len(s) <= maxError {
		return s
	}
	return s[:maxError] + "…"
}
