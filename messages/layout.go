package messages

// The layout of a group's keys, version 1. Scripts of both Redis adapters write it; people read it with redis-cli.
//
// Task hash `…:task:<id>`, one a task id:
//
//	owner     incarnation that owns the task; absent when nobody does
//	fence     number; grows with every Begin of any of its units; 0 while there is only a SCHEDULED one
//	queued    how many entries wait in `…:task:<id>:waiting`; absent for none
//	open      how many units have begun and not ended; absent for one, or for none when the task expires
//	keep      ms of its time to live from when nothing waits any more; absent while anything is open or nothing waits
//	ties      1 when something outside must hear of the end of one of its units, as an open wait must; absent before
//	beside    1 when something stands, or once stood, in `…:long` or `…:log`
//
// and for each unit, with nothing before the name for the default unit and "<escaped unit>/" for another:
//
//	state     RUNNING, SUCCEEDED, … ; PENDING is written only by a release
//	type      agent or agent/handler
//	work      WorkHash of type and payload: the same identity with other work is a conflict
//	run       "<incarnation>:<activation>" of the last Begin
//	fence_at  the fence number of that Begin
//	began     ms of the last Begin
//	created   ms of the first Begin; absent while that is the last one too. Of a SCHEDULED unit: ms at which it was read
//	updated   ms of the last change of state; absent while that is the first Begin
//	failures crashes timeouts deaths blamed interruptions waits   the ledger by class; absent for 0
//	classes   failures and timeouts by class of RetryIf, such as "bad_json=1 overload=3"; absent for none
//	ran       ms the unit had run when its node died last
//	wake      number that an inbox entry must carry to continue it
//	ctype     content type of the result       result   the result
//	error     text of the last failure, or why it was cancelled        reason   Reason name of a FAILED unit
//	doubt     name of the step whose effect is unknown: a WAITING unit that only a person wakes
//	resolved  "<done, rerun or fail> <step>": how its last doubt was settled
//	woken     fence_at of the run that parked it, once the end of a wait has made the unit PENDING again
//	steps     1 once the unit has a checkpoint
//	step:<escaped name>   EncodeStep
//
// A value above LongValue bytes would turn the small hash into a table; it lives under the same field name in
// `…:task:<id>:long`, and the small hash does not have the field.
//
// Beside it: `…:body` (hash: escaped unit → PackFields of the entry, written when the payload leaves the PEL or
// outlives its first beat), `…:waiting` (list of PackFields), `…:log` (list: "<ms> <what> <detail>", what left the
// straight path), `…:waits`, `…:mail`, `…:live` (stream of published chunks, kept for an hour after the last). All but the
// last share the task's time to live; the mail of a task without `ties` has one of its own.
//
// Open waits stand in the hash `…:task:<id>:waits`, field "<escaped unit>:<escaped wait name>", value EncodeWait; one that
// is over has a checkpoint instead. The mail of a task, which may be there before its record, is the hash `…:task:<id>:mail`:
//
//	n:<escaped name>                       how many messages of that name have come
//	m:<escaped name>:<number, from 1>      "<arrival, from 1> <content type>\n<payload>"; "-" for one that comes too late
//	i:<escaped name>:<message id>          number of the message with that id
//	r:<escaped name>:<number>              1 once a wait has taken the message
//	arrivals  unread                       how many messages have come, and how many of them no wait has taken
//
// Of the group's own keys, `…:cancels` is a stream of the newest units that were cancelled while they ran (inc: the
// incarnation that ran it, unit: "<escaped id>:<escaped unit>", why), which the nodes' ticks read; it expires an hour
// after the last one. `…:index:<state>:<escaped type>` has the members "<escaped id>:<escaped unit>" with the ms of the
// change of state as score; of the final states, `keep:<state>` in `…:meta` is the longest time in ms that a record of
// such a unit is kept (0 for ever), after which the index forgets it; `…:doubts` has the same members for what is in doubt,
// with the ms since when. `…:due` says what happens when (score: Unix
// ms): "r:<escaped id>:<escaped unit>" a retry, "w:<escaped id>:<escaped unit>:<escaped wait name>" the end of a wait's
// time, which stands nowhere else, "c:<escaped id>:<escaped unit>" a unit to be cancelled, "q:<escaped id>" a look at what
// waits for a task's owner.
//
// A dead letter in the stream `…:dead` has reason, detail, where the entry was (stream, entry, deliveries, wake), whose it was
// (task_id, unit, type), its fields packed, and ends = 1 where the unit has FAILED with it: only such a letter brings its unit
// back, or completes it. The entry of another comes back as its producer had added it.
//
// Schedules belong to the stream, not to a group. `{stream}:schedules` is a sorted set, escaped name → ms of the next tick,
// +inf for none; it has no time to live. `{stream}:schedule:<escaped name>` is a hash:
//
//	definition  JSON of the schedule, without its code
//	hash        of the definition
//	code        1 when nodes declare it in code; the hash then has a time to live. Absent: a client added it, and the hash is
//	            kept until it is removed, or has nothing next any more
//	declared    ms of when this definition came
//	paused      1 while nothing is to be next
//	broken      why a node that declares it cannot use its own definition
//	removed     1, and nothing else but code: nodes that declare it are to leave it alone until one starts anew
//	last        ms of the last tick that ran       task      the escaped id of its task
//	fired vetoed missed overlapped                 counts of ticks; absent for 0
//	passed      ms of the last tick that was passed over (of the first of several), and why
//	moved       ms of the tick that the last fire found; by, outcome, busy: the node that did it, and what it was answered
//
// `…:gate` is a hash while the group's gate is not open, and goes ten seconds after the last look at the backlog: state
// (warned or shut), what value limit (of what is over its limit or near it; see gate.go), since (ms), first (the value
// then), hint (ms after which a client that is refused should come back). In `…:meta`, gate_at is the ms of the last look.
//
// Token bucket `…:quota:<escaped bucket>`, times in ms with a fraction; it and what is beside it go an hour after they
// last mattered:
//
//	next    when the bucket would be empty of promises: places in the line are given out from here
//	spent   the same of what was really taken
//	quiet   until when a provider asked for silence
//
// Beside it: `…:due` (sorted set: effect → its turn), `…:taken` (sorted set: effect, NUL, number of the run → when it took,
// for half a minute: a repeated call takes nothing).
//
// Of a stream, shared by its groups, with nothing of a group in their names:
//
//	submitted:<id>    hash: escaped unit → "<entry id> <work> <type>", of a unit that was submitted; kept as long as the
//	                  submission says. For a delayed one "<created ms>@ <work> <type>" until it is in the stream, and
//	                  "<created ms>@<entry id> <work> <type>" from then on: the first number is always when it was created
//	delayed           sorted set: "<escaped id>:<escaped unit>" by the ms at which it joins the stream
//	delayed:entries   hash: the same member → packed: ms that the marker is kept, created ms, work, type, then the fields
//	unique:<key>      "<escaped id>:<escaped unit>" that took the key, for the key's period
//
// A producer's own entry that is for later is SCHEDULED too, in each group by itself: its unit's copy goes from
// `…:body` into the inbox when its member r:… in the due set is ripe, as that of a RETRYING one does.
//
// Inbox entries carry the producer's fields plus control fields that start with ControlPrefix. They are believed in
// the inbox only; on the public stream they are ordinary producer fields.
const (
	// LongValue is the longest value, in bytes, that stays in the task's small hash: Redis's
	// hash-max-listpack-value default, measured at 208 against 571 bytes a task.
	LongValue = 64

	// ControlPrefix starts every field that Weir adds to an inbox entry.
	ControlPrefix = "weir."
	// ControlID is the task id that the entry got when it was first read.
	ControlID = ControlPrefix + "id"
	// ControlOrigin is the id of the producer's entry.
	ControlOrigin = ControlPrefix + "origin"
	// ControlWake is the wake number under which the entry continues its unit.
	ControlWake = ControlPrefix + "wake"

	// MaxTaskID is the longest task id in bytes.
	MaxTaskID = 1024
	// MaxFields is the largest number of fields an entry may have: more does not fit a script's argument list twice.
	MaxFields = 1000
)
