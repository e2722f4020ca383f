package redisstate

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/weir-run/weir/actors/statetest"
	"github.com/weir-run/weir/streambridge/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	srv := redistest.Start(t)
	statetest.Run(t, func(t *testing.T) statetest.Fixture {
		w := newWorld(t, srv.Client())
		return statetest.Fixture{
			State: w.state(t, srv.Client()), Other: w.state(t, srv.Client()), Names: w.names, World: w,
		}
	})
}
