-- checkpoint.lua: store one step of a running unit.
--
-- KEYS[1]  the task's hash
-- ARGV[1]  "<incarnation>:<activation>"
-- ARGV[2]  fence number
-- ARGV[3]  the unit's field prefix: "" or "<escaped unit>/"
-- ARGV[4]  the step's field, "step:<escaped name>"
-- ARGV[5]  the encoded checkpoint
--
-- Returns 1 when it is written, 0 when the fence is not the unit's any more (nothing is written).
--
-- Atomic because between the look at the fence and the write another node could begin the unit, and would then read
-- a checkpoint that its own run never made. Repeated, it writes the same again.
local task, u = KEYS[1], ARGV[3]
local field = u .. ARGV[4]
local h = redis.call('HMGET', task, u .. 'state', u .. 'run', u .. 'fence_at', 'beside', u .. 'steps', field)
if h[1] ~= 'RUNNING' or h[2] ~= ARGV[1] or h[3] ~= ARGV[2] then return 0 end
if #ARGV[5] > 64 then
	if h[6] then redis.call('HDEL', task, field) end
	if not h[4] or not h[5] then redis.call('HSET', task, u .. 'steps', '1', 'beside', '1') end
	redis.call('HSET', task .. ':long', field, ARGV[5])
else
	redis.call('HSET', task, u .. 'steps', '1', field, ARGV[5])
	if h[4] then redis.call('HDEL', task .. ':long', field) end
end
return 1
