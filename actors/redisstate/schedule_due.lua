-- schedule_due.lua: what is due, of what the asking node may fire.
--
-- KEYS[1]  the stream's schedules: a sorted set, escaped name → ms of the next tick, +inf for none
-- ARGV[1]  what stands before an escaped name in the key of a schedule's hash
-- ARGV[2]  how many at most
-- ARGV[3…] hashes of the definitions that the node declares in code
--
-- Returns {now ms, soonest ms of those that are not due or "", number of schedules, 1 when there were more than that,
-- {member, tick ms, hash, definition or ""}, …}; the definition is for those that a client added.
--
-- Atomic so that a schedule and its tick are of one moment; repeated, it says what is due then. Schedules whose hash has
-- expired are dropped on the way: those that are due, and of the others one at random.
local set, prefix, most = KEYS[1], ARGV[1], tonumber(ARGV[2])
local most_bytes, most_seen = 4194304, 1000
local mine = {}
for i = 3, #ARGV do mine[ARGV[i]] = true end
local t = redis.call('TIME')
local now = t[1] .. string.sub('00000' .. t[2], -6, -4)

local one = redis.call('ZRANDMEMBER', set)
if one and redis.call('EXISTS', prefix .. one) == 0 then redis.call('ZREM', set, one) end

local found, bytes, more = {}, 0, 0
local due = redis.call('ZRANGEBYSCORE', set, '-inf', now, 'WITHSCORES', 'LIMIT', 0, most_seen)
for i = 1, #due, 2 do
	local h = redis.pcall('HMGET', prefix .. due[i], 'hash', 'code', 'definition')
	if h.err then -- somebody else's key under the name: it hides no other schedule
	elseif not h[1] then
		if redis.call('EXISTS', prefix .. due[i]) == 0 then redis.call('ZREM', set, due[i]) end
	elseif not h[2] or mine[h[1]] then
		if #found == most or bytes > most_bytes then
			more = 1
			break
		end
		local definition = h[2] and '' or h[3]
		bytes = bytes + #definition
		found[#found + 1] = {due[i], due[i + 1], h[1], definition}
	end
end
local soonest = redis.call('ZRANGEBYSCORE', set, '(' .. now, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2] or ''
if soonest == 'inf' then soonest = '' end
return {now, soonest, redis.call('ZCARD', set), more, found}
