-- Set an entry aside as a dead letter with its original fields, acknowledge it, and end its unit where asked.
-- KEYS[1] the stream of the entry
-- ARGV: P, group, consumer, keep ms, id, reason, detail, task id, unit, type, name ("<escaped id>:<escaped unit>" or ""),
--   fail (1 or 0), wake
-- Returns 1, or 0 when the entry is not pending with the consumer: then nothing was done.
-- Atomic because a letter without the acknowledgement would be written twice, and the other way round none. Repeated,
-- the entry is not pending any more.
local key, P, group, me, keep, id = KEYS[1], ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5]
local row = pending(key, group, id, me)
if not row then return 0 end
local ms = now_ms()
local flat = body(key, id)
if not flat and ARGV[11] ~= '' then
  local eid, eunit = string.match(ARGV[11], '^([^:]*):(.*)$')
  flat = saved(P .. 'task:' .. eid, eunit)
end
local ends = ARGV[12] == '1' and ARGV[11] ~= ''
letter(P, ms, keep, {
  reason = ARGV[6], detail = ARGV[7], stream = key, entry = id, deliveries = row[4], wake = ARGV[13],
  task_id = ARGV[8], unit = ARGV[9], type = ARGV[10], ends = ends and 1,
}, flat)
if ends then fail(P, ARGV[11], ARGV[10], ms, ARGV[6], ARGV[7], keep) end
settle_entry(P, key, group, id)
return 1
