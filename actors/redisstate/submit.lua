-- submit.lua: add a task to the public stream, or to what waits for its time, once.
--
-- KEYS[1]  the public stream
-- KEYS[2]  the submit marker of the task id; see messages/layout.go
-- KEYS[3]  the group's gate
-- ARGV[1]  escaped unit
-- ARGV[2]  work hash
-- ARGV[3]  type
-- ARGV[4]  refuse it when the stream has this many entries, or this many wait for their time; 0 for no limit
-- ARGV[5]  ms that the marker is kept
-- ARGV[6]  "" for a task that joins the stream now and has no unique key, else "<delay> <at> <for> <escaped key>": ms to
--          wait, or the ms at which to join it, and how many ms its unique key is taken; each 0 for none
-- ARGV[7…] the entry's fields and values in turn
--
-- Returns {what, entry id, due, unit}: 1 added, 2 known with the same work, 3 the id is taken by other work, 4 there are too
-- many, 5 the unique key is taken by unit, "<escaped id>:<escaped unit>". While it waits for its time the entry id is ""
-- and due the ms of that time, "" otherwise. 6 the gate is shut: "<what> <value> <limit> <hint in ms>" for an entry id.
--
-- Atomic because two submits of one id, or of one unique key, would both find nothing. The marker follows the entry, so a
-- call that was repeated after a lost reply finds it and adds nothing.
local stream, marker, eunit = KEYS[1], KEYS[2], ARGV[1]
local most, keep = tonumber(ARGV[4]), tonumber(ARGV[5])

local function mark(entry)
	redis.call('HSET', marker, eunit, entry .. ' ' .. ARGV[2] .. ' ' .. ARGV[3])
	if redis.call('PTTL', marker) < keep then redis.call('PEXPIRE', marker, keep) end
end

-- shut refuses what is new while the group is too far behind.
local function shut()
	local gate = redis.call('HMGET', KEYS[3], 'state', 'what', 'value', 'limit', 'hint')
	return gate[1] == 'shut' and {6, table.concat(gate, ' ', 2), ''}
end

local function join()
	if most > 0 and redis.call('XLEN', stream) >= most then return {4, '', ''} end
	local entry = redis.call('XADD', stream, '*', unpack(ARGV, 7))
	mark(entry)
	return {1, entry, ''}
end

local known = redis.call('HGET', marker, eunit)
if not known and ARGV[6] == '' then return shut() or join() end

local root, eid = string.match(marker, '^(.*:)submitted:([^:]*)$')
local member = eid .. ':' .. eunit

-- place says where a unit with this marker is: entry id and due.
local function place(of, unit)
	local entry = string.match(of, '^%S+')
	entry = string.match(entry, '@(.*)$') or entry
	return entry, entry == '' and redis.call('ZSCORE', root .. 'delayed', unit) or ''
end

if known then
	local entry, due = place(known, member)
	return {string.match(known, '^%S+ (%S*)') == ARGV[2] and 2 or 3, entry, due}
end

-- include task.lua

local delay, at, period, key = string.match(ARGV[6], '^(%d+) (%d+) (%d+) (.*)$')
local now = tonumber(stamp())
local unique = key ~= '' and period ~= '0' and root .. 'unique:' .. key
if unique then
	local taken = redis.call('GET', unique)
	if taken then
		local id, unit = string.match(taken, '^([^:]*):(.*)$')
		local of = redis.call('HGET', root .. 'submitted:' .. id, unit)
		local entry, due = '', ''
		if of then entry, due = place(of, taken) end -- the key may outlive the marker
		return {5, entry, due, taken}
	end
end

local answer = shut()
if answer then return answer end
-- The clock is cut to the ms, and nothing may be early by a part of one.
local due = delay ~= '0' and now + 1 + tonumber(delay) or tonumber(at)
if due <= now then
	answer = join()
elseif most > 0 and redis.call('ZCARD', root .. 'delayed') >= most then
	answer = {4, '', ''}
else
	redis.call('HSET', root .. 'delayed:entries', member,
		pack_fields({ARGV[5], string.format('%d', now), ARGV[2], ARGV[3], unpack(ARGV, 7)}))
	redis.call('ZADD', root .. 'delayed', due, member)
	keep = keep + due - now
	mark(string.format('%d@', now))
	answer = {1, '', string.format('%d', due)}
end
if unique and answer[1] == 1 then redis.call('SET', unique, member, 'PX', period) end
return answer
