package acceptance

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// process is a worker that runs.
type process struct {
	name string // unique on the site
	cmd  *exec.Cmd
	site *site

	ready chan struct{} // closed when it has printed its ready line
	gone  chan struct{} // closed when it has ended and all of its output was read
	hello line

	mu  sync.Mutex
	log []string // stderr
	bad []string // what it printed on stdout and is no event
}

const keepLog = 2000

// spawn starts a process whose stdout is a line of JSON an event.
func (s *site) spawn(name string, cmd *exec.Cmd) (*process, error) {
	p := &process{name: name, cmd: cmd, site: s, ready: make(chan struct{}), gone: make(chan struct{})}
	// Pipes of our own: Wait closes those of exec before they are read to their end.
	out, childOut, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	log, childLog, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, out.Close(), childOut.Close())
	}
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = childOut, childLog, childAttr()
	// A parent-death signal comes when the thread that forked ends, so fork from a goroutine that is bound to none.
	started := make(chan error)
	go func() { started <- cmd.Start() }()
	err = <-started
	err = errors.Join(err, childOut.Close(), childLog.Close())
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, errors.Join(err, out.Close(), log.Close()))
	}
	var read sync.WaitGroup
	read.Go(func() { p.readEvents(out) })
	read.Go(func() { p.readLog(log) })
	go func() {
		read.Wait()
		_ = cmd.Wait() // how it ended is in ProcessState
		close(p.gone)
	}()
	s.mu.Lock()
	s.processes = append(s.processes, p)
	s.mu.Unlock()
	return p, nil
}

func (p *process) readEvents(out io.ReadCloser) {
	defer out.Close()
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		l, err := p.site.journal.add(p.name, lines.Bytes())
		if err != nil {
			p.mu.Lock()
			p.bad = append(p.bad, lines.Text())
			p.mu.Unlock()
			continue
		}
		if l.Event == "ready" {
			p.hello = l
			close(p.ready)
		}
	}
}

func (p *process) readLog(log io.ReadCloser) {
	defer log.Close()
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		p.mu.Lock()
		if len(p.log) < keepLog {
			p.log = append(p.log, lines.Text())
		}
		p.mu.Unlock()
	}
}

// logged counts the lines of its log that contain all the words.
func (p *process) logged(words ...string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
next:
	for _, l := range p.log {
		for _, w := range words {
			if !strings.Contains(l, w) {
				continue next
			}
		}
		n++
	}
	return n
}

// tail is the end of its log, for a failed test.
func (p *process) tail(n int) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(append(p.log[max(0, len(p.log)-n):], p.bad...), "\n")
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// signal sends one; a process that has ended already is no error.
func (p *process) signal(sig os.Signal) error {
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal %s: %w", p.name, err)
	}
	return nil
}

// ended says whether it has ended.
func (p *process) ended() bool {
	select {
	case <-p.gone:
		return true
	default:
		return false
	}
}

// end kills it and waits; it wakes a frozen one first, whose pipes would stay open otherwise.
func (p *process) end() error {
	if p.ended() {
		return nil
	}
	if err := errors.Join(p.signal(os.Kill), p.signal(syscall.SIGCONT)); err != nil {
		return err
	}
	select {
	case <-p.gone:
		return nil
	case <-time.After(20 * time.Second):
		return fmt.Errorf("%s does not end", p.name)
	}
}
