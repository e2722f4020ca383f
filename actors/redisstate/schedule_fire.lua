-- schedule_fire.lua: go on from one tick of a schedule to another, and submit the tasks of those that run.
--
-- KEYS[1]  the stream's schedules: a sorted set, escaped name → ms of the next tick, +inf for none
-- KEYS[2]  the schedule's hash
-- KEYS[3]  the public stream
-- KEYS[4…] the submit marker of each run's task
-- ARGV[1]  escaped name   ARGV[2]  hash of the definition that the caller knows
-- ARGV[3]  ms of the tick that it believes to be next
-- ARGV[4]  ms of the following one, "" for none
-- ARGV[5]  incarnation    ARGV[6]  P, the group's key prefix
-- ARGV[7]  while the task of the last run has not ended: 0 run all the same, 1 pass over the runs, 2 refuse
-- ARGV[8]  how many ticks are vetoed    ARGV[9]  how many were missed    ARGV[10]  why, for a person
-- ARGV[11] ms that the schedule is kept: one of the code, and one that has nothing next
-- ARGV[12] refuse it when the stream would have more entries, 0 for no limit
-- ARGV[13] what stands before an escaped task id in the key of a submit marker
-- ARGV[14…] for each run: ms of the tick, escaped task id, escaped unit, work hash, type, ms that the marker is kept, number
--          of the arguments that follow for it: fields and values in turn
--
-- Returns {what, what is next in ms or "", escaped id of the task that has not ended}: 1 done, 2 done without its runs
-- because of that task, 3 another tick is next, 4 too early, 5 another definition, 6 the stream is full, 7 refused because of
-- that task. From 3 on nothing was written.
--
-- Atomic because that is the whole promise: whoever finds the tick next is the only one, and its task and the next tick are
-- written together. Time is the server's, so a node whose clock is ahead fires nothing early. Repeated by the same node
-- after a lost reply it answers what it answered.
local set, key, stream = KEYS[1], KEYS[2], KEYS[3]
local member, tick = ARGV[1], ARGV[3]
local score = redis.call('ZSCORE', set, member)
local h = redis.call('HMGET', key, 'hash', 'moved', 'by', 'outcome', 'busy', 'task', 'code')
local shown = score
if not score or score == 'inf' then shown = '' end
if not score or tonumber(score) ~= tonumber(tick) then
	if h[2] == tick and h[3] == ARGV[5] then return {tonumber(h[4]), shown, h[5] or ''} end
	return {3, shown, ''}
end
if h[1] ~= ARGV[2] then return {5, shown, ''} end
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
if now < tonumber(tick) then return {4, shown, ''} end

local runs, at = {}, 14
while at <= #ARGV do
	runs[#runs + 1] = at
	at = at + 7 + tonumber(ARGV[at + 6])
end
local outcome, busy = 1, ''
if #runs > 0 and ARGV[7] ~= '0' and h[6] then
	local state = redis.call('HGET', ARGV[6] .. 'task:' .. h[6], 'state')
	-- One that was submitted and not begun has a marker and no record.
	if not state and redis.call('EXISTS', ARGV[13] .. h[6]) == 1 then state = 'PENDING' end
	if state and state ~= 'SUCCEEDED' and state ~= 'FAILED' and state ~= 'CANCELLED' then
		if ARGV[7] == '2' then return {7, shown, h[6]} end
		outcome, busy = 2, h[6]
	end
end

-- The entries first: a server without memory refuses them before anything is written.
if outcome == 1 and #runs > 0 then
	local most = tonumber(ARGV[12])
	if most > 0 and redis.call('XLEN', stream) + #runs > most then return {6, shown, ''} end
	for i, at in ipairs(runs) do
		local marker, unit = KEYS[3 + i], ARGV[at + 2]
		if redis.call('HEXISTS', marker, unit) == 0 then
			local entry = redis.call('XADD', stream, '*', unpack(ARGV, at + 7, at + 6 + tonumber(ARGV[at + 6])))
			redis.call('HSET', marker, unit, entry .. ' ' .. ARGV[at + 3] .. ' ' .. ARGV[at + 4])
			redis.call('PEXPIRE', marker, ARGV[at + 5])
		end
		redis.call('HSET', key, 'last', ARGV[at], 'task', ARGV[at + 1])
	end
	redis.call('HINCRBY', key, 'fired', #runs)
end
local passed = tonumber(ARGV[8]) + tonumber(ARGV[9])
for name, n in pairs({vetoed = ARGV[8], missed = ARGV[9], overlapped = outcome == 2 and #runs or 0}) do
	if tonumber(n) > 0 then redis.call('HINCRBY', key, name, n) end
end
if outcome == 2 then
	redis.call('HSET', key, 'passed', tick, 'why', 'the task before has not ended')
elseif passed > 0 then
	redis.call('HSET', key, 'passed', tick, 'why', ARGV[10])
end
redis.call('HSET', key, 'moved', tick, 'by', ARGV[5], 'outcome', outcome, 'busy', busy)
local next = ARGV[4]
redis.call('ZADD', set, next == '' and '+inf' or next, member)
if h[7] or next == '' then redis.call('PEXPIRE', key, ARGV[11]) end
return {outcome, next, busy}
