package redistest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// ErrNoServer is returned by [Run] when there is no redis-server on PATH.
var ErrNoServer = errors.New("no redis-server on PATH (on Debian and Ubuntu: apt-get install redis-server)")

// Ports are picked below the range that the kernel hands to outgoing connections (32768 and up on Linux). Inside
// it, a client that redials a dead server's port can be given that very port as its own, connect to itself and keep
// the server from coming back.
const (
	portFirst = 15000
	portLast  = 32000
)

// Config says how a private server runs. The zero Config is a server without persistence, password or memory limit.
type Config struct {
	// Binary is the program to run. Default: redis-server on PATH.
	Binary string
	// Dir is the server's folder, kept at Close. Default: a temporary one, removed at Close.
	Dir string
	// AppendOnly turns the append-only file on: what was acknowledged survives Restart and Kill. RDB snapshots are
	// always off.
	AppendOnly bool
	// AppendFsync is always, everysec or no. Default: everysec.
	AppendFsync string
	// Password is what clients must give. Default: none.
	Password string
	// MaxMemory is a size such as 8mb. Default: no limit.
	MaxMemory string
	// MaxMemoryPolicy is what happens at the limit. Default: noeviction.
	MaxMemoryPolicy string
	// Args are further arguments for redis-server, such as --stream-node-max-entries 10.
	Args []string
	// StartTimeout bounds each start, from the launch to the first answer. Default: 20 s.
	StartTimeout time.Duration
}

func (c Config) withDefaults() Config {
	c.Binary = cmp.Or(c.Binary, "redis-server")
	c.AppendFsync = cmp.Or(c.AppendFsync, "everysec")
	c.StartTimeout = cmp.Or(c.StartTimeout, 20*time.Second)
	return c
}

// Server is a private redis-server. Its methods may be called from several goroutines. It owns no goroutine.
type Server struct {
	cfg     Config
	path    string
	dir     string
	ownsDir bool

	mu     sync.Mutex
	port   int
	cmd    *exec.Cmd // nil while down
	out    *os.File  // the read end of the server's stdout and stderr: its EOF is the server's death
	client *redis.Client
	closed bool
}

// Run starts a server and waits until it answers commands, past its LOADING phase too. The context bounds the start
// only; the server runs until [Server.Close], or until this process ends (on Linux even when it is killed).
// Without a redis-server on PATH the error is [ErrNoServer].
func Run(ctx context.Context, cfg Config) (*Server, error) {
	cfg = cfg.withDefaults()
	path, err := exec.LookPath(cfg.Binary)
	if err != nil {
		if errors.Is(err, exec.ErrNotFound) {
			return nil, ErrNoServer
		}
		return nil, fmt.Errorf("find %s: %w", cfg.Binary, err)
	}
	s := &Server{cfg: cfg, path: path, dir: cfg.Dir}
	if s.dir == "" {
		if s.dir, err = os.MkdirTemp("", "weir-redis-"); err != nil {
			return nil, fmt.Errorf("make a folder for redis-server: %w", err)
		}
		s.ownsDir = true
	}
	for range 20 {
		s.port = freePort()
		if err = s.launch(ctx); !errors.Is(err, errPortTaken) {
			break
		}
	}
	if err != nil {
		return nil, errors.Join(err, s.removeDir())
	}
	return s, nil
}

// Addr is the server's host:port. It stays the same over Restart, and over Kill and Start.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// URL is the server's address as a redis:// URL, with the password if there is one.
func (s *Server) URL() string {
	u := url.URL{Scheme: "redis", Host: s.Addr(), Path: "/0"}
	if s.cfg.Password != "" {
		u.User = url.UserPassword("", s.cfg.Password)
	}
	return u.String()
}

// Dir is the server's folder: its log and its append-only files.
func (s *Server) Dir() string { return s.dir }

// Options are client options that hide no fault: no retries, one dial attempt, the context's deadline kept,
// maintenance notifications off. Each call returns a copy of its own.
func (s *Server) Options() *redis.Options {
	return &redis.Options{
		Addr:                  s.Addr(),
		Password:              s.cfg.Password,
		MaxRetries:            -1,
		DialerRetries:         1,
		ContextTimeoutEnabled: true,
		DisableIdentity:       true,
		MaintNotificationsConfig: &maintnotifications.Config{
			Mode: maintnotifications.ModeDisabled,
		},
	}
}

// Client is the server's own client, made with [Server.Options], the same at each call and closed by Close.
func (s *Server) Client() *redis.Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client == nil {
		s.client = redis.NewClient(s.Options())
	}
	return s.client
}

// NewClient makes a further client, for the caller to close. Each change is applied to [Server.Options] first;
// [Via] sends it through a proxy.
func (s *Server) NewClient(change ...func(*redis.Options)) *redis.Client {
	opts := s.Options()
	for _, c := range change {
		c(opts)
	}
	return redis.NewClient(opts)
}

// Start brings the server back after Kill, on the same port and folder. It does nothing while the server is up.
func (s *Server) Start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd != nil {
		return nil
	}
	return s.launch(context.Background())
}

// Restart stops the server in order (SIGTERM) and starts it again on the same port and folder. Without AppendOnly
// it comes back empty. A server that is down is started.
func (s *Server) Restart() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.down(syscall.SIGTERM); err != nil {
		return err
	}
	return s.launch(context.Background())
}

// Kill ends the server with SIGKILL and returns when it is gone. It does nothing while the server is down.
func (s *Server) Kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.down(os.Kill)
}

// Stop freezes the server with SIGSTOP: connections stay open and nothing answers, until [Server.Cont].
func (s *Server) Stop() error { return s.signal(sigStop) }

// Cont lets a server go on that [Server.Stop] froze.
func (s *Server) Cont() error { return s.signal(sigCont) }

// Log is what the server has logged, at most its last 8 KiB.
func (s *Server) Log() string {
	const most = 8 << 10
	b, err := os.ReadFile(s.logfile())
	if err != nil {
		return ""
	}
	return string(b[max(0, len(b)-most):])
}

// Close kills the server, closes its client and removes its temporary folder. Further calls do nothing.
func (s *Server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	err := s.down(os.Kill)
	if s.client != nil {
		err = errors.Join(err, s.client.Close())
	}
	return errors.Join(err, s.removeDir())
}

func (s *Server) logfile() string { return filepath.Join(s.dir, "redis.log") }

func (s *Server) removeDir() error {
	if !s.ownsDir {
		return nil
	}
	return os.RemoveAll(s.dir)
}

func (s *Server) args() []string {
	yesNo := map[bool]string{true: "yes", false: "no"}
	args := []string{
		"--port", strconv.Itoa(s.port), "--bind", "127.0.0.1", "--daemonize", "no",
		"--dir", s.dir, "--logfile", s.logfile(), "--save", "",
		"--appendonly", yesNo[s.cfg.AppendOnly], "--appendfsync", s.cfg.AppendFsync,
	}
	for _, o := range [][2]string{
		{"--requirepass", s.cfg.Password},
		{"--maxmemory", s.cfg.MaxMemory},
		{"--maxmemory-policy", s.cfg.MaxMemoryPolicy},
	} {
		if o[1] != "" {
			args = append(args, o[0], o[1])
		}
	}
	return append(args, s.cfg.Args...)
}

var errPortTaken = errors.New("port is taken")

// launch starts the process on s.port and waits until that very process answers. Where the port is taken by someone
// else the error is errPortTaken.
func (s *Server) launch(ctx context.Context) error {
	if s.closed {
		return errors.New("start redis-server: it is closed")
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.StartTimeout)
	defer cancel()
	out, childOut, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("start redis-server: %w", err)
	}
	// The log starts anew, so that a failed start is explained by its own lines.
	if err := os.Remove(s.logfile()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("start redis-server: %w", err)
	}
	// Not CommandContext: the context bounds the start, not the server's life.
	cmd := exec.Command(s.path, s.args()...) //nolint:noctx // see above
	cmd.Stdout, cmd.Stderr = childOut, childOut
	cmd.SysProcAttr = childAttr()
	// A child with a parent-death signal is sent it when the thread that forked it ends. A goroutine locked to
	// its thread takes that thread along, and the caller might be one: fork from a goroutine that is not.
	started := make(chan error)
	go func() { started <- cmd.Start() }()
	err = <-started
	childOut.Close()
	if err != nil {
		out.Close()
		return fmt.Errorf("start redis-server: %w", err)
	}
	s.cmd, s.out = cmd, out

	said, err := s.awaitReady(ctx)
	if err == nil {
		return nil
	}
	_ = s.down(os.Kill)
	said += s.Log()
	if strings.Contains(said, "Address already in use") {
		return fmt.Errorf("start redis-server on port %d: %w", s.port, errPortTaken)
	}
	return fmt.Errorf("start redis-server: %w\n%s", err, strings.TrimSpace(said))
}

// awaitReady polls until the process answers. Between two looks it waits on the process's output, whose end means
// that the process is gone; what the process printed is returned.
func (s *Server) awaitReady(ctx context.Context) (string, error) {
	rdb := redis.NewClient(s.Options())
	defer rdb.Close()
	var said bytes.Buffer
	buf := make([]byte, 4096)
	for {
		ready, err := s.ready(ctx, rdb)
		if ready {
			return said.String(), nil
		}
		if ctx.Err() != nil {
			return said.String(), errors.Join(context.Cause(ctx), err)
		}
		_ = s.out.SetReadDeadline(time.Now().Add(3 * time.Millisecond))
		n, err := s.out.Read(buf)
		said.Write(buf[:n])
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return said.String(), errors.New("it exited at once")
		}
	}
}

// ready asks whether the server on our port is our process (two processes that picked one port at the same moment
// must not take each other's server for their own) and has loaded its data.
func (s *Server) ready(ctx context.Context, rdb *redis.Client) (bool, error) {
	// A plain dial first: go-redis logs each failed one, and slows down after some.
	c, err := new(net.Dialer).DialContext(ctx, "tcp", s.Addr())
	if err != nil {
		return false, err
	}
	c.Close()
	info, err := rdb.InfoMap(ctx, "server", "persistence").Result()
	if err != nil {
		return false, err
	}
	pid, loading := info["Server"]["process_id"], info["Persistence"]["loading"]
	if pid != strconv.Itoa(s.cmd.Process.Pid) {
		return false, fmt.Errorf("process %s answers on port %d", pid, s.port)
	}
	return loading == "0", nil
}

// down ends the process and reaps it. A server that does not heed sig within 10 s is killed.
func (s *Server) down(sig os.Signal) error {
	if s.cmd == nil {
		return nil
	}
	if err := s.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal redis-server: %w", err)
	}
	_ = s.out.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.Copy(io.Discard, s.out); err != nil {
		_ = s.cmd.Process.Kill()
	}
	_ = s.cmd.Wait() // "signal: killed" is what was asked for
	err := s.out.Close()
	s.cmd, s.out = nil, nil
	return err
}

func (s *Server) signal(sig os.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd == nil {
		return errors.New("signal redis-server: it is down")
	}
	return s.cmd.Process.Signal(sig)
}

// freePort is a port that nobody listened on a moment ago.
func freePort() int {
	port := 0
	for range 100 {
		port = portFirst + rand.IntN(portLast-portFirst)
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			l.Close()
			break
		}
	}
	return port
}
