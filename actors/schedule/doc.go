// Package schedule describes tasks that come by the clock: the same description in code, in a file and from the command
// line.
//
//	var Daily = schedule.Schedule{
//		Name: "daily-report", Cron: "0 9 * * 1-5", Zone: "Europe/Berlin",
//		Task: actors.NewTask{Type: "report", Payload: Params{Team: "platform"}},
//	}
//
// A [Schedule] says when, which task, and what becomes of ticks that could not be kept. supervision.Config.Schedules
// declares schedules in code, [Load] reads them from a file, and a [Client] adds them while the nodes run.
//
// # One run a tick
//
// What is next of a schedule stands in the store. A node that finds it due works out the following tick and asks the store
// to fire: one atomic script that refuses unless exactly this tick is next and the store's own clock has reached it,
// adds the task to the public stream, and sets what is next. So any number of nodes, restarts, partitions and wrong
// clocks give one task a tick, and no node is special. The task's id is "<name>@<tick>", such as
// daily-report@2026-03-02T08:00:00Z, and Context.Info().Due is the tick: a run that is late still knows its day.
//
// # Who fires what
//
// A schedule declared in code is fired by the nodes that declare it just so. The last node to start wins: if it brings
// another description under the name, that one counts at once, what is next is worked out anew, and nodes with the old
// description fire it no more. When no node declares it any more it rests, and is forgotten after [Forget]. A schedule that
// a Client added is data, and every node of every group of the stream fires it. Either way its task appears once in the
// public stream, where each group sees it.
//
// Pausing survives restarts and new descriptions. Ticks during a pause are not made up for. Removing a schedule that
// live nodes declare works at once on all of them, until one starts anew that still declares it: to keep it quiet, pause it.
//
// # Times
//
// Cron has the usual five fields (minute, hour, day of month, month, day of week) or six, with seconds in front; names,
// ranges, steps, lists, L, W, #, and @hourly, @daily, @weekly, @monthly, @yearly. As in every crontab, where both day fields
// are restricted a day needs to match only one of them. The pattern is matched against the wall clock of Zone (default
// UTC), whose rules are the machine's, or the program's own where the machine has none. When clocks change:
//
//   - Forward: a time in the hour that is left out fires once, at the moment after the gap. "30 2 * * *" fires at 03:00 on
//     that day; "0,30 2 * * *" fires once too.
//   - Back: a time in the hour that comes twice fires once, the first time.
//   - A pattern whose hour is * goes by elapsed time instead: "*/15 * * * *" fires each quarter of an hour, in both passes
//     of the hour that comes twice, and makes up for nothing in a gap.
//
// Every goes by elapsed time from a fixed point ([Schedule.Anchor]): neither restarts nor slow tasks shift it. At fires
// once; if its time has passed when it is first declared, it never does.
//
// # Late ticks
//
// A tick within Grace (a minute by default) of its time is on time, and all of those run. Older ones were missed, because no
// node was up, the server was away, or the stream was full: [Schedule.Missed] says whether one run makes up for all of
// them (the default, with the latest tick), each runs ([RunAll], oldest first, in batches), or none does ([Skip]).
//
// # Tasks that take longer than a tick
//
// They run side by side, unless [Schedule.Overlap] passes over the tick ([Skip]) or cancels the old task ([CancelOld]). One that
// waits, for a message or for a person who settles a doubt, has not ended.
package schedule
