-- commit.lua: end an activation.
--
-- KEYS[1]   the task's hash
-- KEYS[2]   the stream that handed the entry out
-- ARGV[1]   P, the group's key prefix
-- ARGV[2]   "<incarnation>:<activation>"
-- ARGV[3]   fence number    ARGV[4]  entry id
-- ARGV[5]   ms that the record of an ended unit is kept, 0 for ever
-- ARGV[6]   content type    ARGV[7]  result
-- and, where it is not the plain success of a whole task (an argument costs 0.2 µs):
-- ARGV[8]   the unit's field prefix: "" or "<escaped unit>/"
-- ARGV[9]   the state to reach: SUCCEEDED, FAILED, RETRYING, WAITING, CANCELLED, PENDING
-- ARGV[10]  1 to index a SUCCEEDED unit too, else 0
-- ARGV[11]  type            ARGV[12]  group
-- ARGV[13]  the ledger's class to charge, "" for none; behind a space the failures by class of RetryIf, where they change
-- ARGV[14]  ms until a retry is due
-- ARGV[15]  error           ARGV[16]  reason        ARGV[17]  detail
-- ARGV[18]  ms that a dead letter is kept
-- and, where a parked unit or a retry has any:
-- ARGV[19]  what it waits for, packed: {escaped name, "<ms or -1> <messages.EncodeWait>", …}
-- ARGV[20]  the step that is in doubt
--
-- Returns 1 when the outcome is written, now or by the same activation before; 2 when a parked unit need not wait (it is
-- still RUNNING, what is over has its checkpoint); 0 when the fence is not the unit's any more (nothing is written).
--
-- Atomic because the outcome, the due time or the dead letter, and the end of ownership are one fact: half of it would
-- be a retry that nobody is due to make, or an ended task whose waiting entries nobody wakes.
--
-- The success of a whole task that nobody waits for and that never was a suspect is the hot path: it comes first.
local task, P = KEYS[1], ARGV[1]
local ttl, ctype, result, u, to = ARGV[5], ARGV[6], ARGV[7], ARGV[8], ARGV[9]
local h
if u and u ~= '' then
	h = redis.call('HMGET', task, u .. 'state', u .. 'run', u .. 'fence_at', 'queued', 'open', 'beside', u .. 'deaths', 'ties')
else
	h = redis.call('HMGET', task, 'state', 'run', 'fence_at', 'queued', 'open', 'beside', 'deaths', 'ties')
end
if h[2] ~= ARGV[2] or h[3] ~= ARGV[3] then return 0 end
if h[1] ~= 'RUNNING' then
	-- Ours before: the reply was lost. PENDING instead of WAITING is one that was woken since, FAILED one whose body was gone.
	if h[1] == (to or 'SUCCEEDED') then return 1 end
	if to == 'WAITING' and h[1] == 'PENDING' then return redis.call('HGET', task, u .. 'woken') == ARGV[3] and 1 or 0 end
	return (to == 'RETRYING' or to == 'WAITING') and h[1] == 'FAILED'
		and redis.call('HGET', task, u .. 'reason') == 'BODY_GONE' and 1 or 0
end

local at = stamp()

if not u and not h[4] and not h[5] and not h[7] and not h[8] and #ctype <= 64 and ttl ~= '0' then
	local long = #result > 64
	if long then
		redis.call('HSET', task, 'state', 'SUCCEEDED', 'updated', at, 'ctype', ctype, 'beside', '1')
		redis.call('HSET', task .. ':long', 'result', result)
	elseif ctype ~= '' or result ~= '' then
		redis.call('HSET', task, 'state', 'SUCCEEDED', 'updated', at, 'ctype', ctype, 'result', result)
	else
		redis.call('HSET', task, 'state', 'SUCCEEDED', 'updated', at)
	end
	if long or h[6] then
		redis.call('PEXPIRE', task .. ':long', ttl)
		redis.call('PEXPIRE', task .. ':log', ttl)
	end
	redis.call('HDEL', task, 'owner')
	redis.call('PEXPIRE', task, ttl)
	redis.call('HINCRBY', P .. 'counts', 'succeeded', 1)
	if redis.call('HDEL', task .. ':body', '') == 1 then
		redis.call('HDEL', P .. 'saved', KEYS[2] .. '\0' .. ARGV[4])
	end
	return 1
end

-- include task.lua

u, to = u or '', to or 'SUCCEEDED'
local now, keep = tonumber(at), tonumber(ttl)
local eunit = string.sub(u, 1, -2)
local eid = string.sub(task, #P + 6)
local member = eid .. ':' .. eunit
local kind = escape(ARGV[11] or '')
local charged, classes = string.match(ARGV[13] or '', '^(%S*) ?(.*)$')
local error_text, reason, detail = ARGV[15] or '', ARGV[16], ARGV[17]
local waits, doubt = ARGV[19] or '', ARGV[20] or ''

if waits ~= '' and open_all(P, task, eunit, waits, now) and to == 'WAITING' then return 2 end

local function drop_body()
	if redis.call('HDEL', task .. ':body', eunit) == 1 then redis.call('HDEL', P .. 'saved', KEYS[2] .. '\0' .. ARGV[4]) end
end

if tonumber(h[7] or 0) >= 2 then end_trial(P, ARGV[2], member) end

if charged ~= '' then redis.call('HINCRBY', task, u .. charged, 1) end
if classes ~= '' then redis.call('HSET', task, u .. 'classes', classes) end
if error_text ~= '' then put(task, u .. 'error', error_text) end

local flat
if to == 'RETRYING' or to == 'WAITING' or to == 'FAILED' then
	flat = body(KEYS[2], ARGV[4]) or saved(task, eunit)
	-- Who is in doubt waits for a person, who can do without.
	if not flat and (to == 'RETRYING' or to == 'WAITING' and waits ~= '' and doubt == '') then
		detail = (to == 'WAITING' and 'to wait' or 'to be retried') .. ', but its body was trimmed or deleted and there is no copy'
		to, reason = 'FAILED', 'BODY_GONE'
		put(task, u .. 'error', detail)
	end
end

if to == 'RETRYING' or to == 'WAITING' then
	-- It leaves the PEL: the copy of its fields and a new wake number are what it goes on with. A parked unit is not due; what
	-- ends its wait wakes it, or a person, who can settle it without a body too.
	local origin = ARGV[4]
	if flat and KEYS[2] == P .. 'inbox' then
		for i = 1, #flat, 2 do
			if flat[i] == 'weir.origin' then origin = flat[i + 1] end
		end
	end
	local wake = redis.call('HINCRBY', task, u .. 'wake', 1)
	if flat then redis.call('HSET', task .. ':body', eunit, pack_fields(with_control(flat, unescape(eid), origin, wake))) end
	redis.call('HDEL', P .. 'saved', KEYS[2] .. '\0' .. ARGV[4])
	if to == 'RETRYING' then
		redis.call('ZADD', P .. 'due', now + tonumber(ARGV[14]), 'r:' .. member)
	elseif doubt ~= '' then
		in_doubt(P, task, eunit, doubt, now)
	else
		no_doubt(P, task, eunit)
	end
	index(P, kind, member, nil, to, now)
	note(task, now, to == 'WAITING' and 'parked' or charged == 'waits' and 'waits' or 'retries', string.sub(error_text, 1, 300))
	redis.call('HSET', task, u .. 'state', to, u .. 'updated', at)
elseif to == 'PENDING' then
	redis.call('HINCRBY', task, u .. 'interruptions', 1)
	note(task, now, 'interrupted', string.sub(error_text, 1, 300))
	redis.call('HSET', task, u .. 'state', to, u .. 'updated', at)
else
	put(task, u .. 'state', to)
	redis.call('HSET', task, u .. 'updated', at)
	if to == 'SUCCEEDED' then
		if ctype ~= '' then put(task, u .. 'ctype', ctype) end
		if result ~= '' or ctype ~= '' then put(task, u .. 'result', result) end
		if ARGV[10] == '1' then index_ended(P, kind, member, nil, to, now, keep) end
	else
		index_ended(P, kind, member, nil, to, now, keep)
		note(task, now, to == 'FAILED' and 'failed' or 'cancelled', string.sub(detail ~= '' and detail or error_text, 1, 300))
	end
	if to == 'FAILED' then
		redis.call('HSET', task, u .. 'reason', reason)
		-- The group may have vanished while the records stayed: an error here would leave a half-written end.
		local held = redis.pcall('XPENDING', KEYS[2], ARGV[12], ARGV[4], ARGV[4], 1)
		letter(P, now, tonumber(ARGV[18]), {reason = reason, detail = detail ~= '' and detail or error_text, stream = KEYS[2],
			entry = ARGV[4], deliveries = held[1] and held[1][4], wake = redis.call('HGET', task, u .. 'wake') or 0,
			task_id = unescape(eid), unit = unescape(eunit), type = ARGV[11], ends = 1}, flat)
	end
	drop_body()
	redis.call('HINCRBY', P .. 'counts', string.lower(to), 1)
	if h[8] or waits ~= '' then untie(P, task, eunit) end
	closed(task, keep)
end
-- A node that was silent for a lease may have lost the task to one that is at another unit of it.
local owner = redis.call('HGET', task, 'owner')
if not owner or owner == incarnation(ARGV[2]) then disown(P, task, h[4]) end
return 1
