// Package statetest is the conformance suite of an [actors.State]: what a store in Redis, in memory or in a database
// must answer, also to the call that is repeated after a lost reply, to the node that comes back from the dead and to
// the record that somebody wiped.
//
//	func TestConformance(t *testing.T) {
//		statetest.Run(t, func(t *testing.T) statetest.Fixture { … })
//	}
//
// Each test asks for a [Fixture] of its own and runs in parallel with the others.
package statetest
