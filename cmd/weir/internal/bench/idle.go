package bench

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Idle is what a node without work sends.
type Idle struct {
	Seconds   float64            `json:"seconds"`
	PerSecond float64            `json:"commands_per_second"`
	Commands  map[string]float64 `json:"per_second_by_command"`
}

// RunIdle runs a node without work and counts the commands on its own connections: what the server counts contains what
// scripts call, and other clients.
func RunIdle(ctx context.Context, opts *redis.Options, watch time.Duration) (idle Idle, err error) {
	counted := &commandCount{by: map[string]int{}}
	o := *opts
	dial := net.Dialer{Timeout: o.DialTimeout}
	plain := o.Dialer
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		open := plain
		if open == nil {
			open = dial.DialContext
		}
		c, err := open(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &countedConn{Conn: c, to: counted}, nil
	}
	if o.TLSConfig != nil {
		return idle, errors.New("the commands of an encrypted connection cannot be counted")
	}
	rdb := redis.NewClient(&o)
	defer rdb.Close()
	names := newNames("idle")
	defer func() { err = errors.Join(err, forget(context.WithoutCancel(ctx), rdb, names, 0)) }()
	node, err := startNode(ctx, config(rdb, names, 0))
	if err != nil {
		return idle, err
	}
	defer func() { err = errors.Join(err, node.stop()) }()
	if err := node.until(ctx, "the node is ready", func() bool { return node.rt.Ready() == nil }); err != nil {
		return idle, err
	}
	// What the start itself sends is over after a tick.
	settled := time.Now().Add(2 * time.Second)
	if err := node.until(ctx, "the node is settled", func() bool { return time.Now().After(settled) }); err != nil {
		return idle, err
	}
	counted.reset()
	began := time.Now()
	if err := node.until(ctx, "the node was watched", func() bool { return time.Since(began) >= watch }); err != nil {
		return idle, err
	}
	idle.Seconds = time.Since(began).Seconds()
	idle.Commands = map[string]float64{}
	for name, n := range counted.reset() {
		idle.Commands[name] = float64(n) / idle.Seconds
		idle.PerSecond += idle.Commands[name]
	}
	return idle, nil
}

type commandCount struct {
	mu sync.Mutex
	by map[string]int
}

func (c *commandCount) add(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.by[strings.ToLower(name)]++
}

// reset returns the counts and starts anew.
func (c *commandCount) reset() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.by
	c.by = map[string]int{}
	return was
}

// countedConn counts the commands that are written to a connection.
type countedConn struct {
	net.Conn
	to   *commandCount
	scan commandScan
}

func (c *countedConn) Write(b []byte) (int, error) {
	c.scan.write(b, c.to.add)
	return c.Conn.Write(b)
}

// commandScan reads a client's side of RESP: arrays of bulk strings, cut anywhere.
type commandScan struct {
	line  []byte // of a header that is not complete
	parts int    // bulk strings that the command still has
	skip  int    // bytes of a bulk string, its line end included, that are still to come
	name  []byte // of the command, while it comes
	named bool   // the bulk string in hand is the name
}

func (s *commandScan) write(b []byte, command func(name string)) {
	for len(b) > 0 {
		if s.skip > 0 {
			n := min(s.skip, len(b))
			if s.named {
				s.name = append(s.name, b[:n]...)
			}
			s.skip -= n
			b = b[n:]
			if s.skip == 0 && s.named {
				command(strings.TrimRight(string(s.name), "\r\n"))
				s.name, s.named = s.name[:0], false
			}
			continue
		}
		c := b[0]
		b = b[1:]
		if c != '\n' {
			s.line = append(s.line, c)
			continue
		}
		head := strings.TrimRight(string(s.line), "\r")
		s.line = s.line[:0]
		if head == "" {
			continue
		}
		n, err := strconv.Atoi(head[1:])
		if err != nil {
			continue
		}
		switch head[0] {
		case '*':
			s.parts, s.named = n, true
		case '$':
			s.skip = n + 2
			s.parts--
		}
	}
}
