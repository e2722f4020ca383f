-- entries.lua: read a part of the entries that stand for units in one place: who they are, not what they say.
--
-- KEYS[1]  the stream
-- ARGV[1]  P, the group's key prefix
-- ARGV[2]  group
-- ARGV[3]  which: "pending" with somebody, "new" to the group, or "all"
-- ARGV[4]  after this entry id, "" from the beginning
-- ARGV[5]  how many at most
-- ARGV[6…9] how an entry's fields for task id, event id, type and unit are called
--
-- Returns {entry id, consumer, deliveries, "<escaped id>:<escaped unit>", type, …}; consumer is "" where nobody has it, the
-- name where the body is gone and nobody can tell.
--
-- In a script because the bodies stay on the server: they may have a megabyte each. It writes nothing.
local stream, P, group, which, most = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[5]
local from = ARGV[4] ~= '' and '(' .. ARGV[4] or '-'

-- include task.lua

-- last is the id that the group was handed last.
local function last()
	local groups = redis.pcall('XINFO', 'GROUPS', stream)
	for _, g in ipairs(groups.err and {} or groups) do
		local d = {}
		for i = 1, #g, 2 do d[g[i]] = g[i + 1] end
		if d.name == group then return d['last-delivered-id'] end
	end
	return '0-0'
end

local rows, found = {}, {} -- {id, consumer, deliveries}; fields by id
if which == 'pending' then
	local pending = redis.pcall('XPENDING', stream, group, from, '+', most)
	for _, p in ipairs(pending.err and {} or pending) do rows[#rows + 1] = {p[1], p[2], p[4]} end
else
	if which == 'new' then
		local id = last()
		-- Not from the end of the page before where more has been handed out since.
		if from == '-' or redis.call('XRANGE', stream, from, id, 'COUNT', 1)[1] then from = '(' .. id end
	end
	for _, e in ipairs(redis.call('XRANGE', stream, from, '+', 'COUNT', most)) do
		rows[#rows + 1] = {e[1], '', 0}
		found[e[1]] = e[2]
	end
end

-- Control fields are believed in the group's own streams.
local ours = string.sub(stream, 1, #P) == P
local out = {}
for _, row in ipairs(rows) do
	local id = row[1]
	local name, field = redis.call('HGET', P .. 'saved', stream .. '\0' .. id), {}
	local flat = found[id] or not name and body(stream, id)
	for i = 1, #(flat or {}), 2 do field[flat[i]] = field[flat[i]] or flat[i + 1] end
	if not name and flat then
		local task = id
		for _, n in ipairs({ours and 'weir.origin' or '', ARGV[7], ARGV[6], ours and 'weir.id' or ''}) do
			if (field[n] or '') ~= '' then task = field[n] end
		end
		name = escape(task) .. ':' .. escape(field[ARGV[9]] or '')
	end
	for _, v in ipairs({id, row[2], row[3], name or '', field[ARGV[8]] or ''}) do out[#out + 1] = v end
end
return out
