-- schedule_set.lua: pause, resume or remove a schedule.
--
-- KEYS[1]  the stream's schedules: a sorted set, escaped name → ms of the next tick, +inf for none
-- KEYS[2]  the schedule's hash
-- ARGV[1]  escaped name
-- ARGV[2]  pause, resume or remove
-- ARGV[3]  to resume: hash of the definition that the caller knows    ARGV[4]  ms of its next tick, "" for none
--          to remove: ms that nodes which declare it are told so after they asked last
--
-- Returns 1 done, or it was so already; 0 there is none; 2 removed, and nodes declare it in code; 3 it has another
-- definition now.
--
-- Atomic because the pause and what is next are one fact. Repeated after a lost reply it finds its work done; a removal
-- answers 0 then.
local set, key, member = KEYS[1], KEYS[2], ARGV[1]
local h = redis.call('HMGET', key, 'hash', 'code', 'paused', 'removed', 'broken')
if h[4] or not h[1] and not h[5] then return 0 end
if ARGV[2] == 'pause' then
	redis.call('HSET', key, 'paused', '1')
	redis.call('ZADD', set, '+inf', member)
	return 1
end
if ARGV[2] == 'resume' then
	if not h[3] then return 1 end
	if h[1] and h[1] ~= ARGV[3] then return 3 end
	redis.call('HDEL', key, 'paused')
	redis.call('ZADD', set, (not h[1] or ARGV[4] == '') and '+inf' or ARGV[4], member)
	return 1
end
redis.call('DEL', key)
redis.call('ZREM', set, member)
if not h[2] then return 1 end
redis.call('HSET', key, 'removed', '1')
redis.call('PEXPIRE', key, ARGV[3])
return 2
