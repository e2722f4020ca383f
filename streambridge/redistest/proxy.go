package redistest

import (
	"bufio"
	"bytes"
	"crypto/sha1" //nolint:gosec // Redis names scripts by their SHA-1
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Proxy is a wire to a Redis server that fails on demand. It understands the protocol as far as it must to lose one
// reply: commands and replies are passed on unchanged and counted against each other, so do not subscribe or switch
// replies off through it.
//
//	Cut     connections break and new ones break at once        (server gone, network unreachable)
//	Break   connections break, new ones work                    (failover, a load balancer's idle limit)
//	Freeze  connections stay open and pass nothing              (partition without a reset, SIGSTOP)
//	Delay   each batch of bytes waits, in each direction        (a far away server)
//	LoseReply  Redis runs a command, its client gets a broken connection instead of the answer
//
// Heal ends Cut, Freeze and Delay. All methods may be called from several goroutines.
type Proxy struct {
	target string
	ln     net.Listener
	done   chan struct{}
	wg     sync.WaitGroup

	mu     sync.Mutex
	closed bool
	cut    bool
	thaw   chan struct{} // closed by Heal; nil unless frozen
	delay  time.Duration
	links  map[*link]struct{}
	losses []*loss
	lost   atomic.Int64
}

// loss is one reply to be lost. A link claims it when its command passes, and gives it back if it ends before the
// reply came.
type loss struct {
	match   func(cmd []string) bool
	fired   chan struct{}
	claimed bool
}

// NewProxy starts a proxy on a free port of 127.0.0.1 in front of target (host:port). Close ends it.
func NewProxy(target string) (*Proxy, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start a proxy: %w", err)
	}
	p := &Proxy{target: target, ln: ln, done: make(chan struct{}), links: map[*link]struct{}{}}
	p.wg.Go(p.accept)
	return p, nil
}

// Addr is the host:port that clients connect to.
func (p *Proxy) Addr() string { return p.ln.Addr().String() }

// Cut breaks all connections, and each new one at once, until Heal.
func (p *Proxy) Cut() {
	p.mu.Lock()
	p.cut = true
	p.mu.Unlock()
	p.Break()
}

// Break breaks the connections of this moment; new ones work.
func (p *Proxy) Break() {
	p.mu.Lock()
	links := p.links
	p.links = map[*link]struct{}{}
	p.mu.Unlock()
	for l := range links {
		l.close()
	}
}

// Freeze keeps connections open, new ones too, and passes nothing in either direction until Heal, which passes on
// what was held.
func (p *Proxy) Freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.thaw == nil {
		p.thaw = make(chan struct{})
	}
}

// Delay holds each batch of bytes for d, in each direction; 0 ends it.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Heal ends Cut, Freeze and Delay. Replies that are still to be lost stay so.
func (p *Proxy) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut, p.delay = false, 0
	if p.thaw != nil {
		close(p.thaw)
		p.thaw = nil
	}
}

// LoseReply drops the reply of the next command that matches, once, and then breaks its connection: Redis has run
// the command, the client knows nothing. Commands behind it in a pipeline have usually run too. The channel is
// closed when it has happened. Several losses may wait; one command takes the first that matches. Where the
// connection breaks before the reply, or the reply is NOSCRIPT, the loss waits for another match.
//
// match gets the command's words as sent; it is called in the order of the commands of a connection, must not block,
// and must be safe to call from several goroutines. [Command], [Script] and [Nth] make common ones.
func (p *Proxy) LoseReply(match func(cmd []string) bool) (lost <-chan struct{}) {
	l := &loss{match: match, fired: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.losses = append(p.losses, l)
	return l.fired
}

// Lost is how many replies were lost so far.
func (p *Proxy) Lost() int { return int(p.lost.Load()) }

// Close breaks all connections, stops listening and waits for the proxy's goroutines. Further calls do nothing.
func (p *Proxy) Close() error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	p.closed = true
	close(p.done)
	p.mu.Unlock()
	err := p.ln.Close()
	p.Break()
	p.wg.Wait()
	return err
}

// Command matches commands by name and, where given, by the words after it: Command("XACK", "orders").
func Command(name string, words ...string) func(cmd []string) bool {
	return func(cmd []string) bool {
		return len(cmd) > len(words) && strings.EqualFold(cmd[0], name) && slices.Equal(cmd[1:1+len(words)], words)
	}
}

// Script matches calls of a Lua script by its source, as EVAL sends it, or by its SHA-1, as EVALSHA does.
func Script(source string) func(cmd []string) bool {
	sum := sha1.Sum([]byte(source)) //nolint:gosec // Redis names scripts by their SHA-1
	sha := hex.EncodeToString(sum[:])
	return func(cmd []string) bool {
		if len(cmd) < 2 {
			return false
		}
		switch strings.ToUpper(cmd[0]) {
		case "EVAL", "EVAL_RO":
			return cmd[1] == source
		case "EVALSHA", "EVALSHA_RO":
			return strings.EqualFold(cmd[1], sha)
		}
		return false
	}
}

// Nth matches what the n-th match of match does, counted from 1, and nothing else.
func Nth(n int, match func(cmd []string) bool) func(cmd []string) bool {
	var seen atomic.Int64
	return func(cmd []string) bool { return match(cmd) && seen.Add(1) == int64(n) }
}

func (p *Proxy) accept() {
	for {
		c, err := p.ln.Accept()
		if err != nil {
			return
		}
		p.wg.Go(func() { p.serve(c) })
	}
}

// serve carries one connection until either side, a fault or Close ends it.
func (p *Proxy) serve(client net.Conn) {
	defer client.Close()
	if p.refusing() {
		return
	}
	server, err := net.DialTimeout("tcp", p.target, 5*time.Second)
	if err != nil {
		return
	}
	l := &link{proxy: p, client: client, server: server, done: make(chan struct{})}
	defer l.close()
	p.mu.Lock()
	if p.cut || p.closed {
		p.mu.Unlock()
		return
	}
	p.links[l] = struct{}{}
	p.mu.Unlock()

	var both sync.WaitGroup
	both.Go(l.requests)
	both.Go(l.replies)
	both.Wait()
	p.mu.Lock()
	delete(p.links, l)
	p.mu.Unlock()
}

func (p *Proxy) refusing() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cut || p.closed
}

// claim finds the loss that a command is meant for.
func (p *Proxy) claim(cmd []string) *loss {
	p.mu.Lock()
	waiting := slices.Clone(p.losses)
	p.mu.Unlock()
	for _, l := range waiting { // match is the test's code: not under the lock
		if !l.match(cmd) {
			continue
		}
		p.mu.Lock()
		ours := !l.claimed
		l.claimed = true
		p.mu.Unlock()
		if ours {
			return l
		}
	}
	return nil
}

func (p *Proxy) losing() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.losses) > 0
}

// settle ends a claim: fired, or given back.
func (p *Proxy) settle(l *loss, fired bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !fired {
		l.claimed = false
		return
	}
	p.losses = slices.DeleteFunc(p.losses, func(o *loss) bool { return o == l })
	p.lost.Add(1)
	close(l.fired)
}

// link is one connection through the proxy.
type link struct {
	proxy          *Proxy
	client, server net.Conn
	done           chan struct{}
	once           sync.Once

	mu     sync.Mutex
	ended  bool
	sent   int // commands read so far
	loss   *loss
	loseAt int // the number of the reply that loss takes
}

func (l *link) close() {
	l.once.Do(func() {
		close(l.done)
		l.client.Close()
		l.server.Close()
		l.mu.Lock()
		defer l.mu.Unlock()
		l.ended = true
		l.giveBack()
	})
}

// giveBack returns a claim whose reply will not be lost here. The caller holds l.mu.
func (l *link) giveBack() {
	if l.loss != nil {
		l.proxy.settle(l.loss, false)
		l.loss = nil
	}
}

var errLost = errors.New("the reply is lost")

// requests carries commands to the server.
func (l *link) requests() {
	defer l.close()
	l.carry(l.client, l.server, func(raw []byte, _ byte) error {
		l.mu.Lock()
		number := l.sent
		l.sent++
		taken := l.loss != nil
		l.mu.Unlock()
		if taken || !l.proxy.losing() {
			return nil
		}
		cmd, err := words(raw)
		if err != nil {
			return err
		}
		if claimed := l.proxy.claim(cmd); claimed != nil {
			l.mu.Lock()
			l.loss, l.loseAt = claimed, number
			if l.ended {
				l.giveBack()
			}
			l.mu.Unlock()
		}
		return nil
	})
}

// replies carries answers to the client. An out-of-band push ('>') answers no command.
func (l *link) replies() {
	defer l.close()
	number := 0
	l.carry(l.server, l.client, func(raw []byte, kind byte) error {
		if kind == '>' {
			return nil
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.loss != nil && l.loseAt == number {
			if bytes.HasPrefix(raw, []byte("-NOSCRIPT")) {
				l.giveBack() // nothing ran, so there is nothing whose outcome could be lost
				number++
				return nil
			}
			l.proxy.settle(l.loss, true)
			l.loss = nil
			return errLost
		}
		number++
		return nil
	})
}

// carry passes values on in the batches in which they arrive. see looks at each; its error ends the carrying, with
// what came before already passed on and the value itself not.
func (l *link) carry(from, to net.Conn, see func(raw []byte, kind byte) error) {
	r := bufio.NewReaderSize(from, 64<<10)
	var batch []byte
	for {
		at := len(batch)
		all, kind, err := appendValue(batch, r)
		if err == nil {
			err = see(all[at:], kind)
		}
		if err != nil {
			if at > 0 && l.hold() {
				_, _ = to.Write(all[:at])
			}
			return
		}
		batch = all
		if r.Buffered() > 0 && len(batch) < 64<<10 {
			continue
		}
		if !l.hold() {
			return
		}
		if _, err := to.Write(batch); err != nil {
			return
		}
		batch = batch[:0]
	}
}

// hold waits out Delay and Freeze. It answers false when the link ended meanwhile.
func (l *link) hold() bool {
	l.proxy.mu.Lock()
	delay := l.proxy.delay
	l.proxy.mu.Unlock()
	if delay > 0 {
		t := time.NewTimer(delay)
		defer t.Stop()
		select {
		case <-t.C:
		case <-l.done:
			return false
		}
	}
	for {
		l.proxy.mu.Lock()
		thaw := l.proxy.thaw
		l.proxy.mu.Unlock()
		if thaw == nil {
			return true
		}
		select {
		case <-thaw:
		case <-l.done:
			return false
		}
	}
}
