package acceptance

import (
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/streambridge/redistest"
)

// probeHealth watches /readyz of a worker and remembers each change.
type probeHealth struct {
	addr string
	stop chan struct{}
	done sync.WaitGroup

	mu      sync.Mutex
	changes []bool
	why     string // of the last time it was not ready
}

func watchHealth(t *testing.T, p *process) *probeHealth {
	t.Helper()
	h := &probeHealth{addr: p.hello.Health, stop: make(chan struct{})}
	require.NotEmpty(t, h.addr)
	client := &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	h.done.Go(func() {
		look := time.NewTicker(10 * time.Millisecond)
		defer look.Stop()
		for {
			select {
			case <-h.stop:
				return
			case <-look.C:
			}
			resp, err := client.Get("http://" + h.addr + "/readyz")
			if err != nil {
				continue // its process has ended, and the test sees to that
			}
			text, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			h.note(resp.StatusCode == http.StatusOK, string(text))
		}
	})
	t.Cleanup(h.end)
	return h
}

func (h *probeHealth) end() {
	h.mu.Lock()
	select {
	case <-h.stop:
	default:
		close(h.stop)
	}
	h.mu.Unlock()
	h.done.Wait()
}

func (h *probeHealth) note(ready bool, text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.changes) == 0 || h.changes[len(h.changes)-1] != ready {
		h.changes = append(h.changes, ready)
	}
	if !ready {
		h.why = text
	}
}

// ready is the last answer, and whether there was another one before.
func (h *probeHealth) ready() (now, changed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.changes) > 0 && h.changes[len(h.changes)-1], len(h.changes) > 1
}

// load submits effects at a steady pace until it is stopped; what the server refuses is submitted again, as a producer does.
type load struct {
	stop chan struct{}
	done sync.WaitGroup
	ids  []string // read after end
	once sync.Once
}

func (s *site) startLoad(typ string, every time.Duration) *load {
	s.t.Helper()
	c, l := s.client(), &load{stop: make(chan struct{})}
	ctx := s.t.Context()
	l.done.Go(func() {
		clock := time.NewTicker(every)
		defer clock.Stop()
		for i := 0; ; {
			select {
			case <-l.stop:
				return
			case <-clock.C:
			}
			id := fmt.Sprint(typ, "-", i)
			payload := actors.Raw{ContentType: "application/json", Bytes: []byte(`{}`)}
			if _, err := c.Submit(ctx, actors.NewTask{ID: id, Type: typ, Payload: payload}); err == nil {
				l.ids = append(l.ids, id)
				i++
			}
		}
	})
	s.t.Cleanup(func() { l.end() })
	return l
}

func (l *load) end() []string {
	l.once.Do(func() { close(l.stop) })
	l.done.Wait()
	return l.ids
}

// The server goes away under load and comes back with what it had: in order, or killed.
func TestAServerRestartedUnderLoad(t *testing.T) {
	for _, c := range []struct {
		name, fsync string
		bounce      func(*redistest.Server) error
	}{
		{"in order", "everysec", (*redistest.Server).Restart},
		// With everysec a kill may take acknowledged writes along; that is the bargain of that setting.
		{"killed", "always", func(srv *redistest.Server) error {
			if err := srv.Kill(); err != nil {
				return err
			}
			time.Sleep(pick(time.Second, 5*time.Second)) // it is away for that long
			return srv.Start()
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSite(t, pick(2*time.Second, 5*time.Second), redistest.AOF(c.fsync))
			w1, w2 := s.worker("w1", "--health", "127.0.0.1:0"), s.worker("w2", "--health", "127.0.0.1:0")
			s.probe("n1") // tells of each run
			workers := []*process{w1, w2}
			health := watchHealth(t, w1)
			effects, probes := s.startLoad("effect", 5*time.Millisecond), s.startProbes()
			for bounce := range pick(2, 5) {
				s.await(waitLong, "some have succeeded", func() bool { return s.journal.count(completed) > 50*(bounce+1) })
				before := s.journal.count(completed)
				cpu, began := cpuOf(t, workers), time.Now()
				require.NoError(t, c.bounce(s.srv))
				away := time.Since(began)
				used := cpuOf(t, workers) - cpu
				back := s.await(waitLong, "work goes on", func() bool { return s.journal.count(completed) > before+10 })
				t.Logf("away for %v, work went on %v later; CPU of both workers meanwhile: %v", away.Round(time.Millisecond), back.Round(time.Millisecond), used)
				require.Less(t, used, away/2+200*time.Millisecond, "a hot loop")
			}
			effectIDs, probeIDs := effects.end(), probes.end()
			// The workers do not run probes and pass them on; one can be passed back and forth for a while.
			s.await(waitLong, "all have succeeded", func() bool {
				return allAre(s.states(effectIDs), "SUCCEEDED") && allAre(s.states(probeIDs), "SUCCEEDED")
			})
			s.await(waitLong, "nothing is pending", func() bool { return s.pending() == 0 })
			now, changed := health.ready()
			require.True(t, now && changed, "readiness went false and true: %v", health.changes)
			require.Empty(t, s.wrongEffects(effectIDs, 1))
			require.Empty(t, s.letters())
			again := s.ranAfterCommit()
			require.Empty(t, again, "committed and then run again")
			// No live node lost anything to another.
			claims, deaths := s.journal.count(event("entry_claimed")), sum(s.fields(append(effectIDs, probeIDs...), "deaths"))
			require.Zero(t, deaths, "deaths charged although no node died")
			require.LessOrEqual(t, claims, 5)
			t.Logf("%d effects and %d probes, each once; claims from live nodes: %d; readiness %v (%s)",
				len(effectIDs), len(probeIDs), claims, health.changes, firstLine(health.why))
		})
	}
}

func completed(l line) bool { return l.Event == "task_ended" && l.Outcome == "COMPLETED" }

func firstLine(s string) string {
	for i, r := range s {
		if r == '\n' {
			return s[:i]
		}
	}
	return s
}

// startProbes is a load of probes that work for some milliseconds.
func (s *site) startProbes() *load { return s.startLoad("probe", 10*time.Millisecond) }

// ranAfterCommit lists the tasks that a probe began to run after their outcome was committed.
func (s *site) ranAfterCommit() []string {
	over := map[string]int64{}
	for _, l := range s.journal.all(completed) {
		if at, ok := over[l.Task+"/"+l.Unit]; !ok || l.Clock < at {
			over[l.Task+"/"+l.Unit] = l.Clock
		}
	}
	var again []string
	for _, l := range s.journal.all(event("start")) {
		if at, ok := over[l.Task+"/"+l.Unit]; ok && l.Clock > at {
			again = append(again, l.Task+"/"+l.Unit)
		}
	}
	return again
}

// The server is emptied under load: what ran is refused, what is submitted again runs once, and it is said loudly.
func TestAServerEmptiedUnderLoad(t *testing.T) {
	s := newSite(t, pick(2*time.Second, 5*time.Second))
	wire := redistest.StartProxy(t, s.srv.Addr())
	seen := spyOn(wire)
	w1 := s.worker("w1", "--health", "127.0.0.1:0", "--redis", via(wire))
	health := watchHealth(t, w1)
	toWire := func(c *probeConfig) { c.Redis = via(wire) }
	p1, p2 := s.probe("n1", toWire), s.probe("n2", toWire)
	effects := s.startLoad("effect", 5*time.Millisecond)
	var tasks []task
	names := ids("t", pick(40, 200))
	for i, id := range names {
		tasks = append(tasks, task{ID: id, Type: "probe", Payload: probeMessage{MS: 1500 + 10*i}})
	}
	s.submit(tasks...)
	s.await(waitLong, "all run", func() bool { return s.journal.count(event("start")) == len(names) })
	before := s.journal.count(event("start"))
	cpu, calls, began := cpuOf(t, []*process{w1}), seen.counts(), time.Now()
	require.NoError(t, s.rdb.FlushAll(t.Context()).Err())
	// The producer does not know what became of its tasks, and submits them again.
	s.submit(tasks...)
	s.await(waitLong, "the group is there again", func() bool {
		groups, err := s.rdb.XInfoGroups(t.Context(), s.stream).Result()
		return err == nil && len(groups) == 1
	})
	s.await(waitLong, "all that was submitted again has succeeded", func() bool { return allAre(s.states(names), "SUCCEEDED") })
	took := time.Since(began)
	used := cpuOf(t, []*process{w1}) - cpu
	sent, by := seen.since(calls)
	perSecond := float64(sent) / took.Seconds()
	effectIDs := effects.end()
	s.await(waitLong, "nothing is pending", func() bool { return s.pending() == 0 })

	committed := map[string]int{}
	for _, l := range s.journal.all(completed) {
		committed[l.Task]++
	}
	for _, id := range names {
		require.Equal(t, 1, committed[id], "commits of %s: those of the runs before are refused", id)
	}
	// The result is of a run that began after the server was emptied.
	starts := s.journal.all(event("start"))
	late := map[string]bool{}
	for _, l := range starts[before:] {
		late[l.Run] = true
	}
	for i, r := range s.fields(names, "result") {
		require.True(t, len(r) > 2 && late[r[1:len(r)-1]], "the result of %s (%s) is of a run from before", names[i], r)
	}
	// It is said once a node.
	for _, p := range []*process{w1, p1, p2} {
		require.Equal(t, 1, p.logged("[ERROR]", "vanished"), "%s: %s", p.name, p.tail(20))
	}
	for _, p := range []*process{p1, p2} {
		require.Equal(t, 1, s.journal.count(event("group_lost", p.name)))
	}
	s.await(waitLong, "it is ready", func() bool { now, _ := health.ready(); return now })
	// Readiness was gone for a moment: too short to be sure to see it by asking.
	require.Equal(t, 1, w1.logged("calls to the stream fail", "loop=read"))
	require.Equal(t, 1, w1.logged("works again", "loop=read"))
	require.Less(t, used, took/2+200*time.Millisecond, "a hot loop")
	require.Less(t, perSecond, 4000.0, "a hot loop: %v", by)
	after := tally(s.states(effectIDs))
	require.Empty(t, s.letters())
	t.Logf("emptied with %d running: all run again and committed once, in %v; the load's states %v (\"\" ended before); %v of CPU, %.0f commands/s; readiness %v",
		len(names), took.Round(time.Millisecond), after, used, perSecond, health.changes)
}

// The server cannot be reached from the moment of a commit on, for longer than a lease: by all nodes, or by one.
func TestAServerUnreachableAtCommit(t *testing.T) {
	for _, everybody := range []bool{true, false} {
		name := "by one node"
		if everybody {
			name = "by all"
		}
		t.Run(name, func(t *testing.T) {
			s := newSite(t, pick(1500*time.Millisecond, 5*time.Second))
			outage := pick(4*time.Second, 10*time.Second)
			wire := redistest.StartProxy(t, s.srv.Addr())
			w := s.worker("w1", "--redis", via(wire), "--health", "127.0.0.1:0", "--types", "effect,noop")
			health := watchHealth(t, w)
			s.probe("n1", func(c *probeConfig) { c.Redis = via(wire) })
			names := ids("t", pick(60, 300))
			var tasks []task
			for i, id := range names {
				tasks = append(tasks, task{ID: id, Type: "probe", Payload: probeMessage{MS: 1500 + 5*i}})
			}
			atCommit := wire.LoseReply(from(5, luaCall(t, "redisstate/commit.lua")))
			s.submit(tasks...)
			s.await(waitLong, "n1 is at work on all", func() bool { return s.journal.count(event("start", "n1")) == len(names) })
			s.probe("n2", func(c *probeConfig) {
				if everybody {
					c.Redis = via(wire)
				}
			})
			select {
			case <-atCommit:
			case <-time.After(waitLong):
				t.Fatal("nothing was committed")
			}
			wire.Cut()
			began, cpu := time.Now(), cpuOf(t, []*process{w})
			calls := s.stat("stats", "total_commands_processed")
			time.Sleep(outage)
			used := cpuOf(t, []*process{w}) - cpu
			perSecond := float64(s.stat("stats", "total_commands_processed")-calls) / time.Since(began).Seconds() // with those in scripts
			notReady, _ := health.ready()
			wire.Heal()
			healed := time.Now()
			s.await(waitLong, "all have succeeded", func() bool { return allAre(s.states(names), "SUCCEEDED") })
			back := time.Since(healed)
			s.await(waitLong, "nothing is pending", func() bool { return s.pending() == 0 })
			s.await(waitLong, "it is ready", func() bool { now, _ := health.ready(); return now })

			require.False(t, notReady, "ready without a server")
			require.Less(t, used, outage/5, "a hot loop")
			committed, starts := map[string]int{}, map[string]int{}
			for _, l := range s.journal.all(event("start")) {
				starts[l.Task]++
			}
			for _, l := range s.journal.all(completed) {
				committed[l.Task]++
			}
			twice := 0
			for _, id := range names {
				require.LessOrEqual(t, committed[id], 1, "commits of %s", id)
				if starts[id] > 1 {
					twice++
				}
			}
			require.Empty(t, s.ranAfterCommit())
			require.Empty(t, s.letters())
			claims := s.journal.count(event("entry_claimed"))
			if everybody {
				require.Zero(t, claims, "live nodes' work was claimed after the outage")
				require.Zero(t, twice, "what was paid for ran again")
				require.Less(t, perSecond, 100.0)
			} else {
				require.Zero(t, s.journal.count(event("entry_claimed", "n1")), "the node that was cut off claims nothing")
			}
			t.Logf("unreachable %s for %v from a commit on: all done %v after its end; run twice %d of %d, committed twice 0; claims %d; the cut-off worker used %v of CPU; %.0f commands/s at the server; readiness %v (%s)",
				name, outage, back.Round(time.Millisecond), twice, len(names), claims, used, perSecond, health.changes, firstLine(health.why))
		})
	}
}
