-- schedule_list.lua: what the store knows of schedules.
--
-- KEYS[1]  the stream's schedules: a sorted set, escaped name → ms of the next tick, +inf for none
-- ARGV[1]  what stands before an escaped name in the key of a schedule's hash
-- ARGV[2…] escaped names; none of them means all
--
-- Returns {now ms, {member, ms of the next tick or "", the hash's fields and values in turn}, …}.
--
-- Atomic so that each schedule and its tick are of one moment. It reads only.
local t = redis.call('TIME')
local out = {t[1] .. string.sub('00000' .. t[2], -6, -4)}
local members = {unpack(ARGV, 2)}
if #members == 0 then members = redis.call('ZRANGE', KEYS[1], 0, -1) end
for _, member in ipairs(members) do
	local score = redis.call('ZSCORE', KEYS[1], member)
	local flat = redis.call('HGETALL', ARGV[1] .. member)
	if score and #flat > 0 then
		if score == 'inf' then score = '' end
		out[#out + 1] = {member, score, flat}
	end
end
return out
