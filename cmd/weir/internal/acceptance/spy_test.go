package acceptance

import (
	"maps"
	"strings"
	"sync"

	"github.com/weir-run/weir/streambridge/redistest"
)

// spy counts the commands that pass a proxy, which a server's own counters do not tell from those within scripts.
type spy struct {
	mu sync.Mutex
	n  map[string]int
}

// spyOn puts a spy on a proxy for good.
func spyOn(p *redistest.Proxy) *spy {
	s := &spy{n: map[string]int{}}
	p.LoseReply(func(cmd []string) bool { // sees every command and wants none
		s.mu.Lock()
		defer s.mu.Unlock()
		s.n[strings.ToUpper(cmd[0])]++
		return false
	})
	return s
}

func (s *spy) counts() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.n)
}

// since is what has passed since an earlier count.
func (s *spy) since(before map[string]int) (total int, by map[string]int) {
	by = s.counts()
	for name, n := range by {
		by[name] = n - before[name]
		total += by[name]
		if by[name] == 0 {
			delete(by, name)
		}
	}
	return total, by
}
