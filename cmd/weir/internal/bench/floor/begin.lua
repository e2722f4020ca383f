-- begin.lua: the floor's Begin. Frozen: see doc.go before changing a byte.
--
-- KEYS[1]  the task's hash
-- ARGV[1]  owner        who runs the task now
-- ARGV[2]  task type
-- ARGV[3]  payload      copied, so that a trimmed stream cannot lose it
-- ARGV[4]  created_at   unix ms, from the entry
--
-- Returns  {'run', fence, attempt} or {'done', state}
--
-- Atomic because the look at the state, the raised fence and the new owner are one decision: two readers
-- that begin one task between each other's commands would both hold a valid fence.
local state = redis.call('HGET', KEYS[1], 'state')
if state == 'SUCCEEDED' or state == 'FAILED' or state == 'CANCELLED' then
  return {'done', state}
end
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local fence = redis.call('HINCRBY', KEYS[1], 'fence', 1)
local attempts = redis.call('HINCRBY', KEYS[1], 'attempts', 1)
redis.call('HSET', KEYS[1], 'owner', ARGV[1], 'state', 'RUNNING', 'type', ARGV[2],
  'payload', ARGV[3], 'created', ARGV[4], 'updated', string.format('%d', now))
return {'run', fence, attempts}
