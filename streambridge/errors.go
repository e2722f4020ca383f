package streambridge

import "errors"

var (
	// ErrConsumerTaken means that a live process already has this consumer name in the group.
	ErrConsumerTaken = errors.New("the consumer name is taken by a live process")
	// ErrGroupLost means that the stream or its group had vanished and was made again. Entries and state may be gone.
	ErrGroupLost = errors.New("the consumer group had vanished and was made again")
	// ErrUsurped means that another incarnation took over this consumer name.
	ErrUsurped = errors.New("another process took over the consumer name")
	// ErrNoLetter means that there is no dead letter of that id.
	ErrNoLetter = errors.New("no such dead letter")
	// ErrNotOpen means that a method was called before Open.
	ErrNotOpen = errors.New("the stream is not open")
)

var (
	// ErrNotStarted means that the bridge was not started, or has been stopped.
	ErrNotStarted = errors.New("the bridge is not started")
	// ErrStarted means that a bridge was started a second time: make a new one.
	ErrStarted = errors.New("the bridge was started already")
	// ErrDraining means that the node reads no new entries because it is about to leave.
	ErrDraining = errors.New("the bridge drains")
	// ErrBroken means that the bridge gave up because its own state cannot be trusted any more.
	ErrBroken = errors.New("the bridge is broken")
	// ErrUnfinished means that a drain's time was up while entries ran. They were given back; nothing is lost.
	ErrUnfinished = errors.New("the time for draining was up")
)
