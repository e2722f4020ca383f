-- Join the group under a consumer name, or say who has the name.
-- KEYS[1] public stream  KEYS[2] inbox
-- ARGV: P, group, consumer, incarnation, lease ms, client id, types (packed), host, pid, force (the incarnation to turn out, or "")
-- Returns {1, epoch}, or {0, incarnation, client id, beat ms} of the live one that has the name.
-- Atomic because two newcomers with one name must not both find it free; the group is made in the same breath so that
-- nobody sees a node without one. Repeated, it finds the name its own.
local P, group, me, inc, lease = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local ms = now_ms()
local epoch = ensure(P, KEYS[1], group, inc)
local had = redis.call('HMGET', P .. 'consumer:' .. escape(me), 'inc', 'client', 'beat')
if had[1] and had[1] ~= inc then
  if had[1] ~= ARGV[10] and redis.call('EXISTS', P .. 'node:' .. had[1]) == 1 then
    return {0, had[1], had[2] or '', had[3] or ''}
  end
  -- Without this key the old one can neither begin work nor renew what it holds.
  redis.call('DEL', P .. 'node:' .. had[1])
  redis.call('ZREM', P .. 'nodes', had[1])
end
register(P, me, inc, ARGV[6], lease, ms)
redis.call('XGROUP', 'CREATECONSUMER', KEYS[1], group, me)
redis.call('XGROUP', 'CREATECONSUMER', KEYS[2], group, me)
redis.call('HSET', P .. 'life:' .. inc, 'tick', ms, 'consumer', me, 'types', ARGV[7], 'host', ARGV[8], 'pid', ARGV[9])
redis.call('PEXPIRE', P .. 'life:' .. inc, day)
redis.call('ZADD', P .. 'nodes', ms, inc)
return {1, epoch}
