-- submit.lua: add a task to the public stream, once.
--
-- KEYS[1]  the public stream
-- KEYS[2]  the submit marker of the task id: a hash, escaped unit → "<entry id> <work hash> <type>"
-- ARGV[1]  escaped unit
-- ARGV[2]  work hash
-- ARGV[3]  type
-- ARGV[4]  refuse it when the stream has this many entries, 0 for no limit
-- ARGV[5]  ms that the marker is kept
-- ARGV[6…] the entry's fields and values in turn
--
-- Returns {what, entry id}: 1 added, 2 known with the same work, 3 the id is taken by other work, 4 the stream is full.
--
-- Atomic because two submits of one id would both find no marker. The marker follows the entry, so a call that was
-- repeated after a lost reply finds it and adds nothing.
local known = redis.call('HGET', KEYS[2], ARGV[1])
if known then
	local entry, work = string.match(known, '^(%S+) (%S*)')
	return {work == ARGV[2] and 2 or 3, entry}
end
local most = tonumber(ARGV[4])
if most > 0 and redis.call('XLEN', KEYS[1]) >= most then return {4, ''} end
local entry = redis.call('XADD', KEYS[1], '*', unpack(ARGV, 6))
redis.call('HSET', KEYS[2], ARGV[1], entry .. ' ' .. ARGV[2] .. ' ' .. ARGV[3])
redis.call('PEXPIRE', KEYS[2], ARGV[5])
return {1, entry}
