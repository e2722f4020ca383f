-- begin.lua: take the fence of a unit, or say why not.
--
-- KEYS[1]   the task's hash
-- KEYS[2]   the stream that handed the entry out
-- KEYS[3]   the liveness key of this incarnation
-- ARGV[1]   P, the group's key prefix
-- ARGV[2]   group           ARGV[3]  entry id      ARGV[4]  consumer
-- ARGV[5]   incarnation     ARGV[6]  "<incarnation>:<activation>"
-- ARGV[7]   work hash       ARGV[8]  type
-- and, where any of them is not the default (an argument costs 0.2 µs):
-- ARGV[9]   wake number of the entry, default 0
-- ARGV[10]  the unit's field prefix: "<escaped unit>/", default ""
-- ARGV[11]  deliveries when there were more of them than an entry may have that was never begun, default 0
-- ARGV[12]  text of the panic that ended this node's activation before, default ""
-- ARGV[13]  "1" where a suspect may go on trial now, default ""
-- ARGV[14]  ms before which a unit that was never begun must not run, default 0
--
-- Returns {answer, …} with the answers of actors.Answer by number:
--   created alone, in ms                                                     run, under fence 1: the task was not known
--   {1, fence, created, failures, crashes, timeouts, deaths, blamed, interruptions, waits, failures by class of RetryIf,
--    steps, trial}                                                                                          run
--   {8, ms}                                                                                               later
--   {9, fence, created, the same ten, reason, detail}                                                condemned
--   {answer}                           anything else; 3 (elsewhere) also where the unit waits for its time from now on
--
-- Atomic because the look at the PEL, the owner and the state, the charge for a death and the new fence are one
-- decision: between two of them another node could take the entry or the task. Repeated by the same activation it
-- finds its own run and answers the same.
--
-- A task that was never heard of is the hot path: it comes first and pays for nothing below it.
local task, stream = KEYS[1], KEYS[2]
local P, group, entry, consumer = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local me, run, kind = ARGV[5], ARGV[6], ARGV[8]

-- 3 the node lives and the task has a record, 2 the node lives, 1 or 0 it does not.
local known = redis.call('EXISTS', KEYS[3], KEYS[3], task)
if known < 2 then return {7} end
local held = redis.pcall('XPENDING', stream, group, entry, entry, '1', consumer)
if held.err then
	if not string.find(held.err, 'NOGROUP', 1, true) then return held end
	held = {}
end

if held[1] and known == 2 and not ARGV[9] and #kind <= 64 then
	local now = stamp()
	redis.call('HSET', task, 'owner', me, 'fence', '1', 'state', 'RUNNING', 'type', kind, 'work', ARGV[7], 'run', run,
		'fence_at', '1', 'began', now)
	return now
end

local wake_number, u = ARGV[9] or '0', ARGV[10] or ''
local too_often, crash = ARGV[11] or '0', ARGV[12] or ''
local h = redis.call('HMGET', task, 'fence', 'owner', u .. 'state', u .. 'work', u .. 'run', u .. 'wake', 'queued')
local fence, owner, state = h[1], h[2], h[3]

-- include task.lua

local now = tonumber(stamp())
local id = string.sub(task, #P + 6)
local unit = string.sub(u, 1, -2)
local member = id .. ':' .. unit

-- Not ours any more. Nobody asks while a unit of the task is at work here; so what the record calls running here is not:
-- its actor crashed, or the answer to its Begin was lost. Who has the entry now would wait for us as long as we live.
if not held[1] then
	if state == 'RUNNING' and owner == me and string.sub(h[5], 1, #me + 1) == me .. ':' then
		if redis.call('HEXISTS', task, u .. 'reason') == 0 then -- a sentence stands
			redis.call('HINCRBY', task, u .. 'interruptions', 1)
			redis.call('HSET', task, u .. 'state', 'PENDING', u .. 'updated', now)
		end
		disown(P, task, h[7])
	end
	return {7}
end

-- How long another node still owns the task, in ms.
local left = 0
if owner and owner ~= me then
	left = redis.call('PTTL', P .. 'node:' .. owner)
	if left == -2 then
		left = tonumber(redis.call('HGET', P .. 'meta', 'calm_until') or 0) - now
	elseif left < 0 then
		left = 60000
	end
end

-- 1. What is settled already. The entry in hand may be one that waited: with nobody at work, the next one's turn has come.
local settled
if state and h[4] and h[4] ~= ARGV[7] then
	settled = 6
elseif state == 'SUCCEEDED' or state == 'FAILED' then
	settled = 2
elseif state == 'CANCELLED' then
	settled = 5
elseif wake_number ~= (h[6] or '0') then
	settled = 3
end
if settled then
	if h[7] and left <= 0 and owner ~= me then disown(P, task, h[7]) end
	return {settled}
end

local escaped_kind = escape(kind)

-- copy is the entry in hand as the inbox will have it, packed; nil where somebody trimmed its body.
local function copy(number)
	local flat = body(stream, entry)
	if not flat then return nil end
	local origin = entry
	if stream == P .. 'inbox' then
		for i = 1, #flat, 2 do
			if flat[i] == 'weir.origin' then origin = flat[i + 1] end
		end
	end
	return pack_fields(with_control(flat, unescape(id), origin, number))
end

-- 2. It is for later: its copy waits, under a wake number that only the promoted one has. Nobody owns it meanwhile.
local due = tonumber(ARGV[14] or 0)
if not state and due > now and due <= now + 315360000000 then
	local packed = copy(1)
	if not packed then return {8, 1000} end
	if fence then opened(task) end
	redis.call('HSET', task, 'fence', fence or '0', u .. 'state', 'SCHEDULED', u .. 'work', ARGV[7], u .. 'wake', '1',
		u .. 'created', now, u .. 'updated', now)
	put(task, u .. 'type', kind)
	redis.call('HSET', task .. ':body', unit, packed)
	redis.call('ZADD', P .. 'due', ARGV[14], 'r:' .. member)
	index(P, escaped_kind, member, nil, 'SCHEDULED', now)
	return {3}
end

-- 3. Another live node owns the task: the entry waits with it.
if left > 0 then
	local packed = copy(wake_number)
	-- It cannot wait without a body; the next heartbeat rebuilds it or sets it aside.
	if not packed then return {8, 1000} end
	redis.call('RPUSH', task .. ':waiting', packed)
	redis.call('HINCRBY', task, 'queued', 1)
	redis.call('XACK', stream, group, entry)
	if stream == P .. 'inbox' then redis.call('XDEL', stream, entry) end
	redis.call('ZADD', P .. 'due', 'NX', now + left, 'q:' .. id)
	return {4}
end

-- 4. The ledger, and what the end of the activation before costs.
local classes = {'failures', 'crashes', 'timeouts', 'deaths', 'blamed', 'interruptions', 'waits'}
local names = {}
for i, class in ipairs(classes) do names[i] = u .. class end
for _, name in ipairs({'ran', 'began', 'created', 'fence_at', 'reason', 'steps', 'classes'}) do names[#names + 1] = u .. name end
local l = redis.call('HMGET', task, unpack(names))
local ledger = {}
for i, class in ipairs(classes) do ledger[class] = tonumber(l[i] or 0) end
local ran, began, fence_at, reason = tonumber(l[8] or 0), tonumber(l[9] or now), l[11], l[12]
local created = l[10] or l[9] or now
local steps = l[13] and 1 or 0
local life = P .. 'life:' .. me

local function answer(code, number, since, trial, why, detail)
	local out = {code, tostring(number), tostring(since)}
	for _, class in ipairs(classes) do out[#out + 1] = ledger[class] end
	for _, v in ipairs({l[14] or '', steps, trial, why, detail}) do out[#out + 1] = v end
	return out
end

if state == 'RUNNING' and h[5] == run then -- the same call again
	if reason then return answer(9, fence_at, created, 0, reason, get(task, u .. 'error') or '') end
	return answer(1, fence_at, created, redis.call('HGET', life, 'trial') == member and 1 or 0)
end

local set = {}
local function charge(class)
	ledger[class] = ledger[class] + 1
	set[#set + 1], set[#set + 2] = u .. class, ledger[class]
end

local condemned = state == 'RUNNING' and reason
local detail = condemned and (get(task, u .. 'error') or '')
if crash ~= '' and h[5] ~= run and not condemned then
	charge('crashes')
	put(task, u .. 'error', crash)
	note(task, now, 'crashed', string.sub(crash, 1, 300))
end

-- lived says how long a unit ran. Its node's last tick before the begin tells no more than that it was soon over.
local function lived(ms) return ms > 0 and string.format('after %d ms', ms) or 'soon after it began' end

if state == 'RUNNING' and h[5] then
	local gone = string.sub(h[5], 1, (string.find(h[5], ':', 1, true) or 0) - 1)
	if gone ~= me then
		charge('deaths')
		local before = ran
		local dead = redis.call('HMGET', P .. 'life:' .. gone, 'tick', 'trial', 'trial_until')
		local tick = tonumber(dead[1] or 0)
		ran = math.max(0, tick - began)
		set[#set + 1], set[#set + 2] = u .. 'ran', ran
		note(task, now, 'died', 'with node ' .. gone .. ' ' .. lived(ran))
		-- After its trial's time a long unit is a bystander again.
		if dead[2] == member and tick < tonumber(dead[3] or 0) then
			charge('blamed')
			local similar = math.max(ran, before) < 2000 or (ran <= 2 * before and before <= 2 * ran)
			if ledger.blamed >= 2 and similar and not condemned then
				condemned = 'KILLS_NODES'
				detail = string.format('killed its node %d times, %s and %s', ledger.blamed, lived(before), lived(ran))
			end
		end
	end
elseif not state and (not fence or fence == '0') and too_often ~= '0' then
	-- In a task of which something has begun, it waited for its turn while its nodes died: that proves nothing.
	condemned = 'NEVER_BEGUN'
	detail = 'delivered ' .. too_often .. ' times and never begun'
end

-- 5. A suspect runs on trial, one at a time on a node, so that the next death has one culprit.
local trial = 0
if ledger.deaths >= 2 and not condemned then
	local other = redis.call('HMGET', life, 'trial', 'trial_until')
	local left = other[1] and other[1] ~= member and tonumber(other[2] or 0) - now or 0
	if left > 0 or ARGV[13] ~= '1' then
		if #set > 0 then
			index(P, escaped_kind, member, state, nil, now)
			-- Charged once: the unit is PENDING now, and asking again finds nobody's death. What only waits owns nothing.
			redis.call('HSET', task, u .. 'state', 'PENDING', u .. 'run', run, u .. 'updated', now, unpack(set))
			disown(P, task, h[7])
		end
		return {8, left > 0 and math.min(math.max(left, 250), 1000) or 0}
	end
	local long = math.min(1.5 * ran + 2000, 4000 * 2 ^ (ledger.deaths - 2))
	redis.call('HSET', life, 'trial', member, 'trial_until', string.format('%d', now + long))
	redis.call('PEXPIRE', life, 86400000)
	trial = 1
end

-- 6. Ours.
local number = string.format('%d', tonumber(fence or 0) + 1)
if not state then
	if fence then opened(task) end
	set[#set + 1], set[#set + 2] = u .. 'work', ARGV[7]
	put(task, u .. 'type', kind)
else
	if redis.call('PTTL', task) >= 0 then opened(task) end
	if state == 'SCHEDULED' then
		redis.call('HDEL', task, u .. 'created') -- it waited: this is its first begin
		created = now
	elseif not l[10] and l[9] then
		set[#set + 1], set[#set + 2] = u .. 'created', l[9]
	end
	if state ~= 'RUNNING' then
		index(P, escaped_kind, member, state, nil, now)
		if reason then redis.call('HDEL', task, u .. 'reason') end
	end
end
if condemned then
	set[#set + 1], set[#set + 2] = u .. 'reason', condemned
	put(task, u .. 'error', detail)
	note(task, now, 'condemned', detail)
end
redis.call('HSET', task, 'owner', me, 'fence', number, u .. 'state', 'RUNNING', u .. 'run', run, u .. 'fence_at', number,
	u .. 'began', now, u .. 'updated', now, unpack(set))
if condemned then return answer(9, number, created, 0, condemned, detail) end
return answer(1, number, created, trial)
