-- cancel.lua: end a task, or one unit of it, before its time.
--
-- KEYS[1]  the task's hash
-- KEYS[2]  the submit marker of the task id; see messages/layout.go
-- ARGV[1]  P, the group's key prefix
-- ARGV[2]  1 for one unit, 0 for all of the task
-- ARGV[3]  escaped unit; of a task that is not known and gets a record all the same (ARGV[8]) in either case
-- ARGV[4]  ms that the record is kept, 0 for ever
-- ARGV[5]  why              ARGV[6]  by whom, "" for nobody in particular
-- ARGV[7]  how an entry's field for the unit is called
-- ARGV[8]  how its field for the type is called
-- ARGV[9]  type of a unit that nothing is known of, "" to refuse such a one
--
-- Returns {unit, state before, …} for each escaped unit that was cancelled; {state} of what had ended already, the
-- strongest word of several; nothing where nothing is known.
--
-- Atomic because a unit that was looked at could begin, end or be promoted before it is written. Repeated after a lost
-- reply it finds the unit CANCELLED, and says so.
local task, P, which = KEYS[1], ARGV[1], ARGV[3]
local keep, why, by = tonumber(ARGV[4]), ARGV[5], ARGV[6]

-- include task.lua

local now = now_ms()
local eid = string.sub(task, #P + 6)
local units, known = {}, {} -- escaped units; what is known of each
local longest = 0 -- ms until the last of them joins the stream
local function add(eunit, what)
	if ARGV[2] == '1' and eunit ~= which then return end
	if not known[eunit] then units[#units + 1] = eunit end
	known[eunit] = known[eunit] or what
end

for _, name in ipairs(redis.call('HKEYS', task)) do
	if name == 'state' then
		add('', {})
	elseif string.sub(name, -6) == '/state' and not string.find(name, ':', 1, true) then -- a step's field has a colon
		add(string.sub(name, 1, -7), {})
	end
end
local marks = redis.call('HGETALL', KEYS[2])
for i = 1, #marks, 2 do
	local ms, place, work, kind = string.match(marks[i + 1], '^(%d+)(%S*) (%S*) (.*)$')
	local what = {type = kind, work = work ~= '' and work or nil, created = ms}
	if place == '@' then
		-- It joins the stream all the same, for other groups may want it: the record must be there when it comes.
		what.state = 'SCHEDULED'
		local due = redis.call('ZSCORE', string.match(KEYS[2], '^(.*:)submitted:') .. 'delayed', eid .. ':' .. marks[i])
		longest = math.max(longest, tonumber(due or 0) - now)
	end
	add(marks[i], what)
end
if keep > 0 then keep = keep + longest end
-- What waits with the task for its turn was acknowledged, and may have no record.
if redis.call('HEXISTS', task, 'queued') == 1 then
	for _, packed in ipairs(redis.call('LRANGE', task .. ':waiting', 0, -1)) do
		local flat, unit, kind = unpack_fields(packed), nil, nil
		for i = 1, #flat, 2 do
			if flat[i] == ARGV[7] then unit = unit or flat[i + 1] end
			if flat[i] == ARGV[8] then kind = kind or flat[i + 1] end
		end
		add(escape(unit or ''), {type = kind})
	end
end
if #units == 0 then
	if ARGV[9] == '' then return {} end
	units[1], known[which] = which, {type = ARGV[9]}
end

local out, ended = {}, nil
table.sort(units)
for _, eunit in ipairs(units) do
	local state, before = cancel_unit(P, eid, eunit, now, keep, why, by, known[eunit])
	if before then
		if not ended or state < ended then ended = state end -- CANCELLED, FAILED, SUCCEEDED
	else
		out[#out + 1], out[#out + 2] = eunit, state
	end
end
if #out == 0 then return {ended} end
return out
