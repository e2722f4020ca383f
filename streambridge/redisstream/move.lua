-- Move an entry to the stream of an agent type that this node lacks.
-- KEYS[1] the stream of the entry  KEYS[2] public stream
-- ARGV: P, group, consumer, id, task id, agent type
-- Returns 1, or 0 when the entry is not pending with the consumer or has no body: then nothing was done.
-- Atomic because the entry must be in exactly one of the two places. Repeated, it is not pending any more.
local key, P, group, me, id = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4]
if not pending(key, group, id, me) then return 0 end
local flat = body(key, id)
-- One without a body is settled by the next beat or tick.
if not flat then return 0 end
local origin, wake = id, 0
if key ~= KEYS[2] then
  origin, wake = control(flat, 'weir.origin') or '', control(flat, 'weir.wake') or 0
end
redis.call('XADD', P .. 'type:' .. escape(ARGV[6]), '*', unpack(with_control(flat, ARGV[5], origin, wake)))
redis.call('SADD', P .. 'types', ARGV[6])
settle_entry(P, key, group, id)
return 1
