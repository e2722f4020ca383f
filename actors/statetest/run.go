package statetest

import "testing"

// Run runs every test of the suite, each on a Fixture of its own.
func Run(t *testing.T, fresh func(t *testing.T) Fixture) {
	t.Helper()
	for _, group := range []struct {
		name  string
		cases map[string]func(*testing.T, *rig)
	}{
		{"Begin", beginCases},
		{"Owner", ownerCases},
		{"Death", deathCases},
		{"Commit", commitCases},
		{"Fence", fenceCases},
		{"Cancel", cancelCases},
		{"Wait", waitCases},
		{"Mail", mailCases},
		{"Desk", deskCases},
		{"List", listCases},
		{"Later", laterCases},
		{"Doubt", doubtCases},
		{"Identity", identityCases},
		{"Schedule", scheduleCases},
		{"Quota", quotaCases},
	} {
		t.Run(group.name, func(t *testing.T) {
			t.Parallel()
			for name, test := range group.cases {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					test(t, newRig(t, fresh(t)))
				})
			}
		})
	}
	t.Run("Life", func(t *testing.T) {
		t.Parallel()
		theLifeOfAUnit(t, fresh)
	})
	t.Run("Property", func(t *testing.T) {
		t.Parallel()
		nothingIsLost(t, fresh)
	})
	t.Run("Waits", func(t *testing.T) {
		t.Parallel()
		noWaitIsMissed(t, fresh)
	})
}
