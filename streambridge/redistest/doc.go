// Package redistest starts private, real redis-servers, and puts a faulty wire in front of them.
//
// A server listens on a free port of 127.0.0.1, works in a temporary folder of its own and dies with the process
// that started it, so that nothing here ever touches the Redis of the machine it runs on.
//
//	func TestMain(m *testing.M) { goleak.VerifyTestMain(m) } // a running server is a process, not a goroutine
//
//	func TestAck(t *testing.T) {
//		rdb := redistest.Shared(t).Client()  // one server for the test binary: milliseconds
//		stream := redistest.Name(t)          // a name that no other test has
//		…
//	}
//
//	func TestRestart(t *testing.T) {
//		srv := redistest.Start(t, redistest.AOF("always")) // a server of one's own: it may be killed and emptied
//		…
//		require.NoError(t, srv.Kill())
//		require.NoError(t, srv.Start())
//	}
//
//	func TestLostReply(t *testing.T) {
//		srv := redistest.Start(t)
//		wire := redistest.StartProxy(t, srv.Addr())
//		rdb := srv.NewClient(redistest.Via(wire))
//		lost := wire.LoseReply(redistest.Command("XADD")) // Redis runs it, the client never learns
//		…
//		<-lost
//	}
//
// [Run] and [NewProxy] are the same without a test: a demo can use them. The package does not import "testing".
//
// Which to take: [Shared] when the test only adds and removes keys of its own; [Start] when it changes the
// configuration, empties the server, stops it or looks at server-wide numbers.
package redistest
