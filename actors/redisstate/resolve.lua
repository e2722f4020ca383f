-- resolve.lua: settle the effect of a step that is in doubt, as a person says.
--
-- KEYS[1]  the task's hash
-- KEYS[2]  the public stream
-- ARGV[1]  P, the group's key prefix
-- ARGV[2]  escaped unit     ARGV[3]  the step's name
-- ARGV[4]  how: "done", "rerun" or "fail"
-- ARGV[5]  content type and  ARGV[6]  result of a step that is done
-- ARGV[7]  why              ARGV[8]  by whom, "" for nobody in particular
-- ARGV[9]  ms that the dead letter and the record of a unit that failed are kept
--
-- Returns {1} when it is settled, in this way, now or before; {2, state, the step that is in doubt or ""} when the unit is
-- not in doubt on that step; {3} when it is settled and the unit could not go on; {0} when there is no such unit.
--
-- Atomic because between a look at the doubt and the word about it another person could settle it in another way, and the
-- unit would run by both. Repeated after a lost reply it finds how the doubt was settled.

-- include task.lua

local task, P, eunit, step, how = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local keep = tonumber(ARGV[9])
local u = field(eunit, '')
local had = redis.call('HMGET', task, u .. 'state', u .. 'doubt', u .. 'resolved', u .. 'wake')
if not had[1] then return {0} end
if had[2] ~= step then
	if not had[2] and had[3] == how .. ' ' .. step then return {1} end
	return {2, had[1], had[2] or ''}
end
local now = now_ms()
local eid = string.sub(task, #P + 6)
local f = field(eunit, 'step:' .. escape(step))
local said = ARGV[7] .. (ARGV[8] ~= '' and ' (by ' .. ARGV[8] .. ')' or '')
no_doubt(P, task, eunit)
redis.call('HSET', task, u .. 'resolved', how .. ' ' .. step)
note(task, now, 'resolved', string.sub(step .. ': ' .. how .. ', ' .. said, 1, 300))
if how == 'done' then
	local tries, began = string.match(get(task, f) or '', '^%a+ (%d+) (%d+) ')
	put(task, f, string.format('found %s %s %d 0 %d %s\n', tries or '1', began or string.format('%d', now), now, #ARGV[6], ARGV[5]) .. ARGV[6])
	redis.call('HSET', task, u .. 'steps', '1')
elseif how == 'rerun' then
	redis.call('HDEL', task, f)
	redis.call('HDEL', task .. ':long', f)
end
if how == 'fail' then
	local kind, flat = get(task, u .. 'type') or '', saved(task, eunit)
	local detail = 'the effect of step ' .. step .. ' is in doubt: ' .. said
	letter(P, now, keep, {reason = 'IN_DOUBT', detail = detail, stream = KEYS[2], entry = flat and control(flat, 'weir.origin') or '',
		wake = had[4], task_id = unescape(eid), unit = unescape(eunit), type = kind, ends = 1}, flat)
	fail(P, eid .. ':' .. eunit, kind, now, 'IN_DOUBT', detail, keep)
elseif not wake(P, task, eunit, now, keep) then
	return {3}
end
return {1}
