package acceptance

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/actors"
)

// Somebody deletes or trims entries that are pending, and then their owner goes on, drains or dies: each is rebuilt from
// the copy that a heartbeat made, or becomes a dead letter that says so.
func TestEntriesThatOthersRemoveAreNeverLostInSilence(t *testing.T) {
	removals := map[string]func(ctx context.Context, s *site, entries []string) error{
		"XDEL": func(ctx context.Context, s *site, entries []string) error {
			return s.rdb.XDel(ctx, s.stream, entries...).Err()
		},
		"XADD MAXLEN": func(ctx context.Context, s *site, _ []string) error {
			return s.rdb.XAdd(ctx, &redis.XAddArgs{
				Stream: s.stream, MaxLen: 1, Values: []string{"task_id", "foreign", "type", "probe", "payload", "{}"},
			}).Err()
		},
	}
	fates := map[string]os.Signal{"beats": nil, "drains": syscall.SIGTERM, "dies": os.Kill}
	for how, remove := range removals {
		for fate, signal := range fates {
			for _, copied := range []bool{false, true} {
				when := "before its first beat"
				if copied {
					when = "after its first beat"
				}
				t.Run(fmt.Sprintf("%s, the owner %s, %s", how, fate, when), func(t *testing.T) {
					t.Parallel()
					removedWhilePending(t, remove, signal, copied)
				})
			}
		}
	}
}

func removedWhilePending(t *testing.T, remove func(context.Context, *site, []string) error, signal os.Signal, copied bool) {
	// The first beat comes late enough to be there first.
	s := newSite(t, 2*time.Second)
	beat := s.lease / 3
	change := func(c *probeConfig) { c.Beat, c.Grace = beat, 100*time.Millisecond }
	p1 := s.probe("n1", change)
	c := s.client()
	const running, waiting = 5, 5
	var tasks []actors.NewTask
	work := probeMessage{MS: 4000}
	for _, id := range ids("t", running) {
		tasks = append(tasks, actors.NewTask{ID: id, Type: "probe", Payload: work})
	}
	// These wait in the window for the first of their task.
	for i := range waiting + 1 {
		tasks = append(tasks, actors.NewTask{ID: "many", Step: fmt.Sprint("s", i), Type: "probe", Payload: probeMessage{MS: 1500}})
	}
	sent, err := c.SubmitAll(t.Context(), tasks)
	require.NoError(t, err)
	s.await(waitLong, "n1 is at work", func() bool { return s.journal.count(event("start", "n1")) >= running+1 })
	if copied {
		s.await(waitLong, "what runs is copied", func() bool {
			n, err := s.rdb.HLen(t.Context(), s.keys(s.group).Prefix+"saved").Result()
			require.NoError(t, err)
			return n >= running+1
		})
	}
	var entries []string
	for _, one := range sent {
		entries = append(entries, one.EntryID)
	}
	require.NoError(t, remove(t.Context(), s, entries))
	s.probe("n2", change)
	if signal != nil {
		require.NoError(t, p1.signal(signal))
	}

	// Every unit succeeds or has a dead letter that names it, or the entry if nobody knew more of it.
	client := func(one *actors.Task) string {
		u := c.Task(one.ID)
		r, err := u.Status(t.Context())
		if err != nil {
			return ""
		}
		for _, unit := range r.Units {
			if unit.Unit == one.Unit {
				return actors.StateName(unit.State)
			}
		}
		return ""
	}
	var silent []string
	outcome := map[string]int{}
	ended := func() bool {
		clear(outcome)
		silent = silent[:0]
		buried := map[string]bool{}
		for _, l := range s.letters() {
			if l.Reason != "body_gone" {
				continue
			}
			if !strings.Contains(l.Detail, "trimmed or deleted") {
				return false
			}
			buried[l.EntryID] = true
		}
		for _, one := range sent {
			switch state := client(one); {
			case buried[one.EntryID] && state != "SUCCEEDED":
				outcome["dead letter"]++
			case state == "SUCCEEDED":
				outcome["SUCCEEDED"]++
			default:
				silent = append(silent, one.ID+"/"+one.Unit+" "+state)
			}
		}
		return len(silent) == 0
	}
	deadline := time.Now().Add(waitLong)
	for !ended() {
		if time.Now().After(deadline) {
			slices.Sort(silent)
			t.Fatalf("neither done nor a dead letter: %v\n%s", silent, s.picture())
		}
		time.Sleep(200 * time.Millisecond)
	}
	s.await(waitLong, "nothing is pending", func() bool { return s.pending() == 0 })
	if copied {
		require.GreaterOrEqual(t, outcome["SUCCEEDED"], running+1, "what had a copy is rebuilt: %v", outcome)
	}
	t.Logf("%v; rebuilt or found gone by: n1 %d, n2 %d", outcome,
		s.journal.count(event("entry_gone", "n1")), s.journal.count(event("entry_gone", "n2")))
}

// Entries that nobody had read yet are trimmed by somebody else: nobody can bring them back, so it is said loudly.
func TestTrimmedBeforeTheyWereReadIsSaid(t *testing.T) {
	t.Parallel()
	s := newSite(t, 2*time.Second)
	p := s.probe("n1")
	require.NoError(t, p.signal(syscall.SIGSTOP)) // reads nothing meanwhile
	c := s.client()
	for i := range 20 {
		_, err := c.Submit(t.Context(), actors.NewTask{ID: fmt.Sprint("t", i), Type: "probe", Payload: probeMessage{}})
		require.NoError(t, err)
	}
	require.NoError(t, s.rdb.XTrimMaxLen(t.Context(), s.stream, 5).Err())
	require.NoError(t, p.signal(syscall.SIGCONT))
	s.await(waitLong, "it is said", func() bool {
		var lost int64
		for _, l := range s.journal.all(event("stream_missed")) {
			lost += l.Count
		}
		return lost > 0
	})
	var lost int64
	for _, l := range s.journal.all(event("stream_missed")) {
		lost += l.Count
	}
	t.Logf("20 entries, all but 5 trimmed while the only reader was frozen: %d reported as missed", lost)
}
