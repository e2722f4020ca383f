package memstream

import "time"

// Schedule is what the server keeps of a schedule of a stream: the hash of messages/layout.go and its place in the sorted
// set. Times are Unix ms. Only a script may touch it, and none may keep it.
type Schedule struct {
	Name       string
	Definition []byte
	Hash       string // "" where no node could use its definition yet
	InCode     bool
	Paused     bool
	Removed    bool // nothing else counts then
	Broken     string
	NextMS     int64 // 0 for none

	DeclaredMS, LastMS, PassedMS      int64
	Task, Why                         string
	Fired, Vetoed, Missed, Overlapped int64

	Moved ScheduleMove

	untilMS int64
}

// ScheduleMove is what the last fire found, who did it, and what it was answered.
type ScheduleMove struct {
	TickMS  int64
	By      string
	Outcome int
	Busy    string
}

// plans are the schedules of one stream, by name.
type plans struct{ all map[string]*Schedule }

// Schedules are those of the stream, by name; all of its groups share them.
func (tx *Tx) Schedules() map[string]*Schedule {
	key := tx.w.keys.Schedules()
	p := tx.w.data.plans[key]
	if p == nil {
		p = &plans{all: map[string]*Schedule{}}
		tx.w.data.plans[key] = p
	}
	return p.all
}

// ExpireSchedule gives a schedule a time to live; ≤ 0 keeps it.
func (tx *Tx) ExpireSchedule(s *Schedule, ttl time.Duration) {
	if s.untilMS = 0; ttl <= 0 {
		return
	}
	all := tx.Schedules()
	asked := s.untilMS
	s.untilMS = tx.NowMS + max(ttl.Milliseconds(), 1)
	if asked != 0 {
		return
	}
	tx.w.data.expiry.at(s.untilMS, func(now int64) int64 {
		if due(s.untilMS, now) && all[s.Name] == s {
			delete(all, s.Name)
		}
		return s.untilMS
	})
}
