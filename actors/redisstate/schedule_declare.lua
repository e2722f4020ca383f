-- schedule_declare.lua: write a schedule's definition, or find the same one there.
--
-- KEYS[1]  the stream's schedules: a sorted set, escaped name → ms of the next tick, +inf for none
-- KEYS[2]  the schedule's hash
-- ARGV[1]  escaped name
-- ARGV[2]  definition    ARGV[3]  hash of it
-- ARGV[4]  ms of the first tick of a definition that is new or changed, "" for none
-- ARGV[5]  1 when a node declares it in code, 0 when a client adds it
-- ARGV[6]  1 when that node has just started: its definition wins
-- ARGV[7]  why the node cannot use its definition, "" when it can
-- ARGV[8]  ms that a schedule of the code is kept
--
-- Returns 1 known, 2 new, 3 changed, 4 taken (a client's name is one of the code), 5 another definition counts, 6 removed
-- since the node started.
--
-- Atomic because of two nodes that start at once, the last one's definition and its next tick must win together.
-- Repeated after a lost reply it finds the schedule known.
local set, key, member = KEYS[1], KEYS[2], ARGV[1]
local code, start, broken = ARGV[5] == '1', ARGV[6] == '1', ARGV[7]
local h = redis.call('HMGET', key, 'hash', 'code', 'paused', 'removed', 'broken')
local there = h[1] or h[5]

if h[4] then
	if code and not start then
		redis.call('PEXPIRE', key, ARGV[8])
		return 6
	end
	redis.call('DEL', key)
	h, there = {}, nil
end
if not code then
	if there and h[2] then return 4 end
	if h[1] == ARGV[3] then return 1 end
elseif there and not h[2] and not start then
	return 5
end

local t = redis.call('TIME')
local now = t[1] .. string.sub('00000' .. t[2], -6, -4)
if broken ~= '' then
	if there and not h[2] then return 5 end
	redis.call('HSET', key, 'broken', broken, 'code', '1')
	redis.call('HSETNX', key, 'declared', now)
	redis.call('ZADD', set, 'NX', '+inf', member)
	redis.call('PEXPIRE', key, ARGV[8])
	return there and 1 or 2
end
if code and h[1] then
	if h[1] == ARGV[3] then
		redis.call('HSET', key, 'code', '1')
		if start then redis.call('HDEL', key, 'broken') end
		redis.call('PEXPIRE', key, ARGV[8])
		return 1
	end
	if not start then return 5 end
end

redis.call('HSET', key, 'definition', ARGV[2], 'hash', ARGV[3], 'declared', now)
redis.call('HDEL', key, 'moved', 'by', 'outcome', 'busy', 'broken')
if code then
	redis.call('HSET', key, 'code', '1')
	redis.call('PEXPIRE', key, ARGV[8])
else
	redis.call('HDEL', key, 'code')
	redis.call('PERSIST', key)
end
local score = ARGV[4]
if h[3] or score == '' then score = '+inf' end
redis.call('ZADD', set, score, member)
return h[1] and 3 or 2
