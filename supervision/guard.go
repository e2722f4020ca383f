package supervision

import (
	"fmt"
	"runtime/debug"

	"github.com/asynkron/protoactor-go/actor"
)

// guard is the middleware of the runtime's own actors. A panic in one of them is a fault of Weir, not of an agent: there
// is no state to trust afterwards. It is reported once with its stack and ends the runtime, whose entries come back
// through their lease; restarting the actor in place would forget what it held.
//
// Panics in life-cycle messages are reported and swallowed: protoactor would resurrect a stopping actor or wedge its
// parent for ever.
func guard(name string, report func(error)) actor.ReceiverMiddleware {
	return func(next actor.ReceiverFunc) actor.ReceiverFunc {
		return func(c actor.ReceiverContext, env *actor.MessageEnvelope) {
			defer func() {
				if r := recover(); r != nil {
					report(fmt.Errorf("%s actor panicked on %T: %v\n%s", name, env.Message, r, debug.Stack()))
				}
			}()
			next(c, env)
		}
	}
}
