package memstream

import (
	"time"

	"github.com/weir-run/weir/messages"
)

// Emission is an entry for another stream of the server.
type Emission struct {
	Keys     messages.Keys // of that stream
	ID, Unit string
	Mark     Mark
	TTL      time.Duration // of the marker
	Fields   []messages.Pair
}

// Taken reports whether the id of an emission is taken in its stream by other work.
func (tx *Tx) Taken(e Emission) bool {
	mark, known := tx.w.data.mark(e)
	return known && mark.Work != e.Mark.Work
}

// Emit adds an entry to another stream, and its submit marker, unless its id is known there.
func (tx *Tx) Emit(e Emission) {
	d := tx.w.data
	if _, known := d.mark(e); known {
		return
	}
	e.Mark.EntryID = d.make(e.Keys.Stream).add(tx.NowMS, e.Fields).String()
	d.setMark(e.Keys.Submitted(e.ID), e.Unit, e.Mark, tx.NowMS, e.TTL)
}

func (d *data) mark(e Emission) (m Mark, known bool) {
	if all := d.marks[e.Keys.Submitted(e.ID)]; all != nil {
		m, known = all.units[e.Unit]
	}
	return m, known
}
