-- quota_take.lua: take tokens from buckets, all at once, or give the effect its place in each line.
--
-- KEYS[1]   the hash of the first bucket
-- ARGV[1]   the effect
-- ARGV[2]   number of its run
-- and for each bucket:
-- ARGV[i]   its hash
-- ARGV[i+1] tokens
-- ARGV[i+2] ms from one token to the next
-- ARGV[i+3] how many may go at once after a pause
-- ARGV[i+4] ms by which what is really taken may be ahead of its pace
--
-- Returns 0 when the tokens are taken, now or by the same run before; else in how many ms the effect's turn comes.
--
-- Atomic because two effects would get one turn, and tokens of one bucket would be lost while another lets the effect
-- wait. Repeated, it finds what the run has taken, or the effect's place.
--
-- `next` is a calendar: each place moves it on, so that many who wait come back one by one. `spent` is moved by what is
-- really taken: who comes after its turn goes at once where that keeps the pace, and gets a new place where a crowd of
-- late ones does not, as after an outage. So the pace is kept, and nobody who is always late waits for ever.
local effect, run = ARGV[1], ARGV[1] .. '\0' .. ARGV[2]
local t = redis.call('TIME')
local now = t[1] * 1000 + t[2] / 1000
local hour, places, repeats = 3600000, 600000, 30000 -- how long a place is kept after its turn, and what was taken

local function text(ms) return string.format('%.3f', ms) end

if redis.call('ZSCORE', KEYS[1] .. ':taken', run) then return 0 end
local buckets, turn = {}, now
for i = 3, #ARGV, 5 do
	local key, n, step, burst, spare = ARGV[i], tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2]), tonumber(ARGV[i + 3]), tonumber(ARGV[i + 4])
	local h = redis.call('HMGET', key, 'next', 'spent', 'quiet')
	local b = {key = key, next = tonumber(h[1] or 0), spent = tonumber(h[2] or 0), quiet = tonumber(h[3] or 0), cost = n * step}
	local room = math.max(burst, n) * step
	redis.call('ZREMRANGEBYSCORE', key .. ':due', '-inf', text(now - places))
	local first = math.max(now, b.quiet, math.max(b.spent, now) + b.cost - room - spare)
	b.due = tonumber(redis.call('ZSCORE', key .. ':due', effect) or nil)
	local ahead = b.due and b.due >= b.quiet - step and math.max(b.due, b.quiet)
	if ahead and ahead > now then
		b.due = ahead -- several nodes hear of one silence, and not in the same ms: who was first after it still is
	elseif not b.due or first > now then
		local following = math.max(b.next, now) + b.cost
		b.due = math.max(first, following - room)
		b.next = b.due > now and math.max(following, b.due + room) or following
		b.new = true
	end
	turn = math.max(turn, b.due)
	buckets[#buckets + 1] = b
end
for _, b in ipairs(buckets) do
	if turn <= now then
		b.spent = math.max(b.spent, now) + b.cost
		redis.call('ZREM', b.key .. ':due', effect)
		redis.call('ZREMRANGEBYSCORE', b.key .. ':taken', '-inf', text(now - repeats))
		redis.call('ZADD', b.key .. ':taken', text(now), run)
		redis.call('PEXPIRE', b.key .. ':taken', repeats)
	elseif b.new then
		redis.call('ZADD', b.key .. ':due', text(b.due), effect)
	end
	redis.call('HSET', b.key, 'next', text(b.next), 'spent', text(b.spent))
	local keep = math.ceil(math.max(b.next, b.spent, b.quiet, now) - now) + hour
	redis.call('PEXPIRE', b.key, keep)
	redis.call('PEXPIRE', b.key .. ':due', keep)
end
return math.ceil(turn - now)
