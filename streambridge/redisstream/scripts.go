package redisstream

import (
	"context"
	_ "embed"

	"github.com/redis/go-redis/v9"

	"github.com/weir-run/weir/messages"
)

//go:embed stream.lua
var streamLua string

// script is one Lua file behind the two preludes, for the server at hand.
type script struct{ plain, allowOOM *redis.Script }

func newScript(text string) *script {
	whole := messages.TaskLua + "\n" + streamLua + "\n" + text
	return &script{
		plain: redis.NewScript(whole),
		// A server whose memory is full refuses scripts that write. Ours free memory, or move what is there already.
		allowOOM: redis.NewScript("#!lua flags=allow-oom\n" + whole),
	}
}

var (
	//go:embed join.lua
	joinLua string
	//go:embed heal.lua
	healLua string
	//go:embed beat.lua
	beatLua string
	//go:embed bury.lua
	buryLua string
	//go:embed move.lua
	moveLua string
	//go:embed release.lua
	releaseLua string
	//go:embed tick.lua
	tickLua string
	//go:embed gate.lua
	gateLua string
	//go:embed limit.lua
	limitLua string
	//go:embed status.lua
	statusLua string
	//go:embed settle.lua
	settleLua string

	joinScript    = newScript(joinLua)
	healScript    = newScript(healLua)
	beatScript    = newScript(beatLua)
	buryScript    = newScript(buryLua)
	moveScript    = newScript(moveLua)
	releaseScript = newScript(releaseLua)
	tickScript    = newScript(gateLua + limitLua + tickLua)
	statusScript  = newScript(gateLua + statusLua)
	settleScript  = newScript(settleLua)
)

// run runs a script by its hash, and by its text where the server does not know it: after a restart, a failover or a
// SCRIPT FLUSH.
func (b *binding) run(ctx context.Context, s *script, keys []string, args ...any) (any, error) {
	sc := s.plain
	if b.allowOOM {
		sc = s.allowOOM
	}
	return sc.Run(ctx, b.rdb, keys, args...).Result()
}
