package redistest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-run/weir/streambridge/redistest"
)

// helperEnv makes the test binary a process that starts a server, prints its pid and waits to be killed.
const helperEnv = "REDISTEST_HELPER"

func TestMain(m *testing.M) {
	if os.Getenv(helperEnv) != "" {
		helper()
		return
	}
	goleak.VerifyTestMain(m)
}

func helper() {
	s, err := redistest.Run(context.Background(), redistest.Config{})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(s.Addr())
	select {}
}

var _ redistest.TB = testing.TB(nil)

func short(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func TestTwoServersAreApart(t *testing.T) {
	ctx := short(t)
	a, b := redistest.Start(t), redistest.Start(t)
	require.NotEqual(t, a.Addr(), b.Addr())
	require.NotContains(t, a.Addr(), ":6379")
	require.NoError(t, a.Client().Set(ctx, "k", "v", 0).Err())
	require.ErrorIs(t, b.Client().Get(ctx, "k").Err(), redis.Nil)
	first := a.Client()
	require.Same(t, first, a.Client())
}

func TestManyStartAtOnce(t *testing.T) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	ids := map[string]bool{}
	for range 8 {
		wg.Go(func() {
			s, err := redistest.Run(context.Background(), redistest.Config{})
			if !assert.NoError(t, err) {
				return
			}
			defer s.Close()
			info, err := s.Client().InfoMap(context.Background(), "server").Result()
			assert.NoError(t, err)
			mu.Lock()
			defer mu.Unlock()
			ids[info["Server"]["run_id"]] = true
		})
	}
	wg.Wait()
	require.Len(t, ids, 8)
}

func TestNoServerOnPath(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := redistest.Run(t.Context(), redistest.Config{})
	require.ErrorIs(t, err, redistest.ErrNoServer)
}

func TestBadArgumentIsExplained(t *testing.T) {
	_, err := redistest.Run(t.Context(), redistest.Config{Args: []string{"--no-such-option", "1"}})
	require.ErrorContains(t, err, "no-such-option")
}

func TestStartGivesUpWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("enough")
	cancel(stop)
	_, err := redistest.Run(ctx, redistest.Config{})
	require.ErrorIs(t, err, stop)
}

func TestPassword(t *testing.T) {
	ctx := short(t)
	s := redistest.Start(t, redistest.Password("s3:cr@t"))
	require.NoError(t, s.Client().Ping(ctx).Err())

	opts, err := redis.ParseURL(s.URL())
	require.NoError(t, err)
	byURL := s.NewClient(func(o *redis.Options) { o.Addr, o.Password = opts.Addr, opts.Password })
	defer byURL.Close()
	require.NoError(t, byURL.Ping(ctx).Err())

	without := s.NewClient(func(o *redis.Options) { o.Password = "" })
	defer without.Close()
	require.ErrorContains(t, without.Ping(ctx).Err(), "NOAUTH")
}

func TestMaxMemory(t *testing.T) {
	ctx := short(t)
	s := redistest.Start(t, redistest.MaxMemory("2mb", ""))
	big := strings.Repeat("x", 1<<20)
	var err error
	for i := 0; i < 10 && err == nil; i++ {
		err = s.Client().Set(ctx, strconv.Itoa(i), big, 0).Err()
	}
	require.ErrorContains(t, err, "OOM")
}

func TestAOFSurvives(t *testing.T) {
	ctx := short(t)
	s := redistest.Start(t, redistest.AOF("always"))
	addr := s.Addr()
	for i, again := range []func() error{
		s.Restart,
		func() error { return errors.Join(s.Kill(), s.Kill(), s.Start(), s.Start()) },
	} {
		require.NoError(t, s.Client().Incr(ctx, "n").Err())
		require.NoError(t, again())
		require.Equal(t, addr, s.Addr())
		n, err := s.Client().Get(ctx, "n").Int()
		require.NoError(t, err)
		require.Equal(t, i+1, n)
	}
}

func TestWithoutAOFARestartForgets(t *testing.T) {
	ctx := short(t)
	s := redistest.Start(t)
	require.NoError(t, s.Client().Set(ctx, "k", "v", 0).Err())
	require.NoError(t, s.Restart())
	require.ErrorIs(t, s.Client().Get(ctx, "k").Err(), redis.Nil)
}

func TestKilledServerRefuses(t *testing.T) {
	ctx := short(t)
	s := redistest.Start(t)
	require.NoError(t, s.Client().Ping(ctx).Err())
	require.NoError(t, s.Kill())
	require.Error(t, s.Client().Ping(ctx).Err())
	require.Error(t, s.Stop())
}

func TestStopAndCont(t *testing.T) {
	ctx := short(t)
	s := redistest.Start(t)
	require.NoError(t, s.Client().Ping(ctx).Err())
	require.NoError(t, s.Stop())
	brief, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	require.Error(t, s.Client().Ping(brief).Err())
	require.NoError(t, s.Cont())
	require.NoError(t, s.Client().Ping(ctx).Err())
}

func TestCloseOfAStoppedServerRemovesItsFolder(t *testing.T) {
	s, err := redistest.Run(t.Context(), redistest.Config{})
	require.NoError(t, err)
	require.DirExists(t, s.Dir())
	require.NotEmpty(t, s.Log())
	require.NoError(t, s.Stop())
	require.NoError(t, s.Close())
	require.NoError(t, s.Close())
	require.NoDirExists(t, s.Dir())
	require.Error(t, s.Start())
}

func TestAGivenFolderIsKept(t *testing.T) {
	ctx := short(t)
	dir := t.TempDir()
	for i := range 2 {
		s, err := redistest.Run(ctx, redistest.Config{Dir: dir, AppendOnly: true, AppendFsync: "always"})
		require.NoError(t, err)
		n, err := s.Client().Incr(ctx, "n").Result()
		require.NoError(t, err)
		require.EqualValues(t, i+1, n)
		require.NoError(t, s.Close())
	}
}

func TestShared(t *testing.T) {
	ctx := short(t)
	names := map[string]bool{}
	for range 3 {
		t.Run("a test/with {odd} name", func(t *testing.T) {
			s := redistest.Shared(t)
			require.Same(t, s, redistest.Shared(t))
			name := redistest.Name(t)
			require.Regexp(t, `^[A-Za-z0-9-]+$`, name)
			names[name] = true
			require.NoError(t, s.Client().Set(ctx, name, 1, 0).Err())
		})
	}
	require.Len(t, names, 3)
}

func TestServerDiesWithItsParent(t *testing.T) {
	if !redistest.DiesWithParent {
		t.Skip("needs the parent-death signal of Linux")
	}
	exe, err := os.Executable()
	require.NoError(t, err)
	tmp := t.TempDir()
	cmd := exec.CommandContext(t.Context(), exe)
	cmd.Env = append(os.Environ(), helperEnv+"=1", "TMPDIR="+tmp)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	var addr string
	_, err = fmt.Fscan(out, &addr)
	require.NoError(t, err)

	rdb := redis.NewClient(redistest.Shared(t).Options())
	opts := redistest.Shared(t).Options()
	opts.Addr = addr
	require.NoError(t, rdb.Close())
	rdb = redis.NewClient(opts)
	defer rdb.Close()
	require.NoError(t, rdb.Ping(t.Context()).Err(), addr)
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
	require.Eventually(t, func() bool { return rdb.Ping(t.Context()).Err() != nil }, 10*time.Second, 5*time.Millisecond)
}

// fakeTB records what a test of this package must not do to itself.
type fakeTB struct {
	testing.TB
	fatal string
}

func (f *fakeTB) Helper() {}

func (f *fakeTB) Fatalf(format string, args ...any) {
	f.fatal = fmt.Sprintf(format, args...)
	panic(f)
}

func TestStartWithoutServerSaysHowToGetOne(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	f := &fakeTB{TB: t}
	require.PanicsWithValue(t, f, func() { redistest.Start(f) })
	require.Contains(t, f.fatal, "make test")
}
