-- commit.lua: the floor's fenced Commit. Frozen: see doc.go before changing a byte.
--
-- KEYS[1]  the task's hash
-- ARGV[1]  owner   as given to begin.lua
-- ARGV[2]  fence   as answered by begin.lua
-- ARGV[3]  state   the final state
-- ARGV[4]  result
--
-- Returns  1 when the outcome is written, 0 when the fence is stale (nothing is written)
--
-- Atomic because the check of the fence and the write it allows must not be parted: an owner that lost
-- the task in between would overwrite its successor's result.
local held = redis.call('HMGET', KEYS[1], 'owner', 'fence')
if held[1] ~= ARGV[1] or held[2] ~= ARGV[2] then
  return 0
end
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
redis.call('HSET', KEYS[1], 'state', ARGV[3], 'result', ARGV[4], 'updated', string.format('%d', now))
return 1
