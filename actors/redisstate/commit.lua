-- commit.lua: end an activation.
--
-- KEYS[1]   the task's hash
-- KEYS[2]   the stream that handed the entry out
-- ARGV[1]   P, the group's key prefix
-- ARGV[2]   "<incarnation>:<activation>"
-- ARGV[3]   fence number
-- ARGV[4]   the unit's field prefix: "" or "<escaped unit>/"
-- ARGV[5]   the state to reach: SUCCEEDED, FAILED, RETRYING, CANCELLED, PENDING
-- ARGV[6]   ms that the record of an ended unit is kept, 0 for ever
-- ARGV[7]   content type     ARGV[8]  result
-- ARGV[9]   entry id
-- ARGV[10]  1 to index a SUCCEEDED unit too, else 0
-- and for any state but SUCCEEDED, or an indexed one:
-- ARGV[11]  type             ARGV[12]  group
-- ARGV[13]  the ledger's class to charge, "" for none
-- ARGV[14]  ms until a retry is due
-- ARGV[15]  error            ARGV[16]  reason        ARGV[17]  detail
-- ARGV[18]  ms that a dead letter is kept
-- ARGV[19]  the task id      ARGV[20]  the unit
--
-- Returns 1 when the outcome is written, now or by the same activation before; 0 when the fence is not the unit's
-- any more (nothing is written).
--
-- Atomic because the outcome, the due time or the dead letter, and the end of ownership are one fact: half of it would
-- be a retry that nobody is due to make, or an ended task whose waiting entries nobody wakes.
--
-- The success of a task with nothing beside its small hash is the hot path: it comes first.
local task, P, u = KEYS[1], ARGV[1], ARGV[4]
local to, ttl, ctype, result = ARGV[5], ARGV[6], ARGV[7], ARGV[8]
local h = redis.call('HMGET', task, u .. 'state', u .. 'run', u .. 'fence_at', 'queued', 'open', u .. 'deaths', 'beside')
local state = h[1]
if h[2] ~= ARGV[2] or h[3] ~= ARGV[3] then return 0 end
if state ~= 'RUNNING' then
	-- Ours before: the reply was lost. FAILED instead of RETRYING is a retry whose body was gone.
	if state == to or (to == 'RETRYING' and state == 'FAILED') then return 1 end
	return 0
end

local t = redis.call('TIME')
local stamp = t[1] .. string.sub(1000000 + t[2], 2, 4)

if to == 'SUCCEEDED' and not h[4] and not h[5] and not h[6] and not h[7] and #result <= 64 and #ctype <= 64
	and ttl ~= '0' and ARGV[10] == '0' then
	if ctype ~= '' or result ~= '' then
		redis.call('HSET', task, u .. 'state', to, u .. 'updated', stamp, u .. 'ctype', ctype, u .. 'result', result)
	else
		redis.call('HSET', task, u .. 'state', to, u .. 'updated', stamp)
	end
	redis.call('HDEL', task, 'owner')
	redis.call('PEXPIRE', task, ttl)
	redis.call('HINCRBY', P .. 'counts', 'succeeded', 1)
	if redis.call('HDEL', task .. ':body', string.sub(u, 1, -2)) == 1 then
		redis.call('HDEL', P .. 'saved', KEYS[2] .. '\0' .. ARGV[9])
	end
	return 1
end

-- include task.lua

local now, keep = tonumber(stamp), tonumber(ttl)
local eunit = string.sub(u, 1, -2)
local member = string.sub(task, #P + 6) .. ':' .. eunit
local kind = string.gsub(ARGV[11] or '', '[%%:{}]', {['%'] = '%25', [':'] = '%3A', ['{'] = '%7B', ['}'] = '%7D'})
local charged, error_text, reason, detail = ARGV[13], ARGV[15], ARGV[16], ARGV[17]

-- index_ended indexes a final unit and forgets those whose records have expired.
local function index_ended()
	local key = P .. 'index:' .. to .. ':' .. kind
	redis.call('ZADD', key, now, member)
	redis.call('SADD', P .. 'index:kinds', kind)
	if keep > 0 then
		redis.call('ZREMRANGEBYSCORE', key, '-inf', '(' .. string.format('%d', now - keep))
		redis.call('PEXPIRE', key, keep)
	end
end

local function drop_body()
	if redis.call('HDEL', task .. ':body', eunit) == 1 then redis.call('HDEL', P .. 'saved', KEYS[2] .. '\0' .. ARGV[9]) end
end

if tonumber(h[6] or 0) >= 2 then
	local life = P .. 'life:' .. string.sub(ARGV[2], 1, string.find(ARGV[2], ':', 1, true) - 1)
	if redis.call('HGET', life, 'trial') == member then redis.call('HDEL', life, 'trial', 'trial_until') end
end

if charged and charged ~= '' then redis.call('HINCRBY', task, u .. charged, 1) end
if error_text and error_text ~= '' then put(task, u .. 'error', error_text) end

local flat
if to == 'RETRYING' or to == 'FAILED' then
	flat = body(KEYS[2], ARGV[9]) or saved(task, eunit)
	if to == 'RETRYING' and not flat then
		to, reason, detail = 'FAILED', 'BODY_GONE', 'to be retried, but its body was trimmed or deleted and there is no copy'
		put(task, u .. 'error', detail)
	end
end

if to == 'RETRYING' then
	local origin = ARGV[9]
	if KEYS[2] == P .. 'inbox' then
		for i = 1, #flat, 2 do
			if flat[i] == 'weir.origin' then origin = flat[i + 1] end
		end
	end
	local wake = redis.call('HINCRBY', task, u .. 'wake', 1)
	local due = now + tonumber(ARGV[14])
	redis.call('HSET', task .. ':body', eunit, pack_fields(with_control(flat, ARGV[19], origin, wake)))
	redis.call('HDEL', P .. 'saved', KEYS[2] .. '\0' .. ARGV[9])
	redis.call('ZADD', P .. 'due', due, 'r:' .. member)
	index(P, kind, member, state, to, now)
	note(task, now, charged == 'waits' and 'waits' or 'retries', string.sub(error_text, 1, 300))
	redis.call('HSET', task, u .. 'state', to, u .. 'updated', stamp)
elseif to == 'PENDING' then
	redis.call('HINCRBY', task, u .. 'interruptions', 1)
	note(task, now, 'interrupted', string.sub(error_text, 1, 300))
	redis.call('HSET', task, u .. 'state', to, u .. 'updated', stamp)
else
	put(task, u .. 'state', to)
	redis.call('HSET', task, u .. 'updated', stamp)
	if to == 'SUCCEEDED' then
		if ctype ~= '' then put(task, u .. 'ctype', ctype) end
		if result ~= '' or ctype ~= '' then put(task, u .. 'result', result) end
		if ARGV[10] == '1' then index_ended() end
	else
		index_ended()
		note(task, now, to == 'FAILED' and 'failed' or 'cancelled', string.sub(detail ~= '' and detail or error_text, 1, 300))
	end
	if to == 'FAILED' then
		redis.call('HSET', task, u .. 'reason', reason)
		local held = redis.call('XPENDING', KEYS[2], ARGV[12], ARGV[9], ARGV[9], 1)
		letter(P, now, tonumber(ARGV[18]), {reason = reason, detail = detail ~= '' and detail or error_text, stream = KEYS[2],
			entry = ARGV[9], deliveries = held[1] and held[1][4], wake = redis.call('HGET', task, u .. 'wake') or 0,
			task_id = ARGV[19], unit = ARGV[20], type = ARGV[11]}, flat)
	end
	drop_body()
	redis.call('HINCRBY', P .. 'counts', string.lower(to), 1)
	closed(task, keep)
end
disown(P, task, h[4])
return 1
