package memstate

import (
	"fmt"
	"time"

	"github.com/weir-run/weir/messages"
	"github.com/weir-run/weir/streambridge/memstream"
)

const (
	// condemnAt is how often a unit may be blamed for the death of its node.
	condemnAt = 2
	// suspectAt is from how many deaths on a unit runs on trial.
	suspectAt = 2
	// shortMS is below what two run times count as similar, whatever they are.
	shortMS = 2000
)

// death charges the death of the node that ran the unit, and blames the unit if it was the one on trial there.
func (b *beginner) death() {
	u := b.unit
	before, ran, blamed := u.RanMS, int64(0), false
	if gone := b.tx.Life(u.Run.Incarnation); gone != nil {
		ran = max(gone.TickMS-u.BeganMS, 0)
		// After its trial's time a long unit is a bystander again.
		blamed = gone.Trial != "" && gone.TickMS < gone.TrialUntilMS && gone.Trial == memstream.Member(b.task.ID, u.Name)
	}
	u.Deaths++
	u.RanMS = ran
	b.tx.Note(b.task, "died", fmt.Sprintf("with node %s %s", u.Run.Incarnation, lived(ran)))
	if !blamed {
		return
	}
	u.Blamed++
	if u.Blamed >= condemnAt && similar(before, ran) && u.Reason == 0 {
		b.condemn(messages.Reason_REASON_KILLS_NODES,
			fmt.Sprintf("killed its node %d times, %s and %s", u.Blamed, lived(before), lived(ran)))
	}
}

// lived says how long a unit ran. Its node's last tick before the begin tells no more than that it was soon over.
func lived(ms int64) string {
	if ms <= 0 {
		return "soon after it began"
	}
	return fmt.Sprintf("after %d ms", ms)
}

// condemn has the unit rejected instead of run.
func (b *beginner) condemn(reason messages.Reason, detail string) {
	b.unit.Reason, b.unit.Error = reason, detail
	b.tx.Note(b.task, "condemned", detail)
}

// similar reports whether two run times may be of one kind of death.
func similar(a, b int64) bool {
	return max(a, b) < shortMS || a <= 2*b && b <= 2*a
}

// suspect puts a unit with too many deaths on trial, where the request asks for it: alone among the suspects of its node,
// for a while. later means that it must ask again, after the wait when another one is on trial.
func (b *beginner) suspect() (later bool, wait time.Duration) {
	u, now := b.unit, b.tx.NowMS
	if u.Deaths < suspectAt || u.Reason != 0 {
		return false, 0
	}
	me, life := memstream.Member(b.task.ID, u.Name), b.tx.KeepLife(b.req.Incarnation)
	if life.Trial != "" && life.Trial != me && now < life.TrialUntilMS {
		return true, time.Duration(min(max(life.TrialUntilMS-now, 250), 1000)) * time.Millisecond
	}
	if !b.req.Trial {
		return true, 0
	}
	life.Trial = me
	life.TrialUntilMS = now + min(u.RanMS*3/2+2000, 4000<<min(u.Deaths-suspectAt, 20))
	return false, 0
}
