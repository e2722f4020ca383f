package supervision

import (
	"fmt"
	"runtime/debug"

	"github.com/asynkron/protoactor-go/actor"
)

// guard is deferred in the Receive of the runtime's own actors. A panic in one of them is a fault of Weir, not of an agent:
// there is no state to trust afterwards. It is reported once with its stack and ends the runtime, whose entries come back
// through their lease; restarting the actor in place would forget what it held. It covers life-cycle messages too, in which
// a panic would have protoactor resurrect a stopping actor or wedge its parent for ever.
//
// It is no middleware: that costs three allocations and half as much again a message.
func guard(name string, c actor.Context, report func(error)) {
	if r := recover(); r != nil {
		report(fmt.Errorf("%s actor panicked on %T: %v\n%s", name, c.Message(), r, debug.Stack()))
	}
}
