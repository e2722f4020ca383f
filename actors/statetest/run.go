package statetest

import "testing"

// Run runs every test of the suite, each on a Fixture of its own.
func Run(t *testing.T, fresh func(t *testing.T) Fixture) {
	t.Helper()
	for _, c := range []struct {
		name string
		test func(*testing.T, Fixture)
	}{} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.test(t, fresh(t))
		})
	}
}
