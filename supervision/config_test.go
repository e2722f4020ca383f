package supervision

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/actors"
)

func TestDefaults(t *testing.T) {
	c := Config{}.WithDefaults()
	require.Equal(t, 15*time.Second, c.Lease)
	require.Equal(t, 5*time.Second, c.Beat)
	require.Equal(t, "agent:tasks", c.Names.Stream)
	require.Equal(t, "agent-workers", c.Names.Group)
	require.NotEmpty(t, c.Names.Consumer)
	require.Equal(t, 2*time.Second, Config{Lease: 6 * time.Second}.WithDefaults().Beat, "a shorter lease beats faster")
	require.Equal(t, c, c.WithDefaults(), "defaults are a fixed point")
}

func TestImpossibleValuesAreNamed(t *testing.T) {
	_, err := New(Config{})
	require.ErrorContains(t, err, "Stream must be set")
	require.ErrorContains(t, err, "State must be set")
	require.ErrorContains(t, err, "Agents must not be empty")
	for _, tc := range []struct {
		change func(*Config)
		says   string
	}{
		{func(c *Config) { c.Lease, c.Beat = 6*time.Second, 4*time.Second }, "Lease (6s) must be at least 3×Beat (4s)"},
		{func(c *Config) { c.Beat = time.Microsecond }, "Beat (1µs) must be at least 10ms"},
		{func(c *Config) { c.Tick = time.Minute }, "Tick (1m0s) must be at most half of Lease (15s)"},
		{func(c *Config) { c.InFlight = -5 }, "InFlight (-5) must be at least 1"},
		{func(c *Config) { c.MaxPayload = 1 << 30 }, "MaxPayload (1073741824) must be at most InFlightBytes (67108864)"},
		{func(c *Config) { c.MaxDeliveries = -2 }, "MaxDeliveries (-2) must be at least 1, or -1"},
		{func(c *Config) { c.Restarts.Cap = time.Millisecond }, "Restarts.Cap (1ms) must be at least Restarts.Base (100ms)"},
		{func(c *Config) { c.Keep.Succeeded = time.Minute }, "Keep.Succeeded (1m0s) must be at least 10×Lease (15s)"},
		{func(c *Config) { c.Keep.Failed = -1 }, "Keep (24h0m0s, -1ns, 720h0m0s) must not be negative"},
		{func(c *Config) { c.Names.Stream = "a{b" }, `Names.Stream ("a{b")`},
		{func(c *Config) { c.Names.Fields.Type = "task_id" }, `Names.Fields.TaskID and Names.Fields.Type are both "task_id"`},
		{func(c *Config) { c.Agents = actors.Agents{"x": {}} }, `agent "x"`},
		{func(c *Config) { c.Concurrency.Node = -2 }, "Concurrency.Group (0) and Concurrency.Node (-2) must be at least 1, or -1"},
		{func(c *Config) { c.Gate.Memory = 2 }, "Gate.Memory (2) must be above 0 and at most 1, or -1"},
		{func(c *Config) { c.Quotas = map[string]Rate{"gpt": {Tokens: 60}} }, `Quotas: quota "gpt": Tokens (60) must be at least 1, Per (0s) above 0`},
		{func(c *Config) {
			c.Agents = actors.Agents{"x": actors.Func(func(*actors.Context, actors.None) (actors.None, error) { return nil, nil }).With(actors.NeedsQuota("gpt"))}
		}, `Quotas has no "gpt", which agent "x" needs`},
	} {
		c := Config{}.WithDefaults()
		tc.change(&c)
		require.ErrorContains(t, c.Validate(), tc.says)
	}
}
