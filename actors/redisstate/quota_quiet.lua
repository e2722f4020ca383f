-- quota_quiet.lua: keep everybody from taking of buckets for a while, as their provider asked.
--
-- KEYS[1]   the hash of the first bucket
-- ARGV[1]   ms
-- and for each bucket:
-- ARGV[i]   its hash
-- ARGV[i+1] ms from one token to the next
-- ARGV[i+2] how many may go at once after a pause
--
-- Returns 1. Atomic because a longer silence must not be overwritten by a shorter one. Repeated, it moves the end by the
-- time that passed.
--
-- After the silence the bucket is empty: those who wait go on at their pace. Places before its end are given out anew
-- when their owners come.
local t = redis.call('TIME')
local now = t[1] * 1000 + t[2] / 1000
local till = now + tonumber(ARGV[1])
for i = 2, #ARGV, 3 do
	local key, step, burst = ARGV[i], tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2])
	local h = redis.call('HMGET', key, 'next', 'spent', 'quiet')
	if tonumber(h[3] or 0) < till then
		local empty = till + (burst - 1) * step
		local following, spent = math.max(tonumber(h[1] or 0), empty), math.max(tonumber(h[2] or 0), empty)
		redis.call('HSET', key, 'quiet', string.format('%.3f', till), 'next', string.format('%.3f', following), 'spent', string.format('%.3f', spent))
		redis.call('PEXPIRE', key, math.ceil(math.max(following, spent) - now) + 3600000)
	end
end
return 1
