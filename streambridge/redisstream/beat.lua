-- Renew what a node holds of one stream, and say what it has lost.
-- KEYS[1] the stream of the entries
-- ARGV: P, group, consumer, incarnation, lease ms, keep ms, client id, public stream, how many units had been cancelled
--   when the node last looked ("" never), then for each entry, in order of ids: id, "<escaped task id>:<escaped unit>" or
--   "" where it was never decoded, "1" when a copy was made before
-- Returns {1} when the consumer name is another's, else {0, lost ids, saved ids, gone ids, names of cancelled units and
--   why in turn, how many were cancelled in all}.
-- Atomic because an entry may pass to another consumer between any look and the renewal: a renewal would steal it back.
-- Repeated, it renews again and reports what was gone as lost.
local key, P, group, me, inc, lease, keep = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], tonumber(ARGV[6])
if usurped(P, me, inc) then return {1} end
local ms = now_ms()
register(P, me, inc, ARGV[7], lease, ms)
local n = (#ARGV - 9) / 3
local lost, copied, rotten, cancelled = {}, {}, {}, {}
local total = redis.call('HGET', P .. 'counts', 'cancelled') or '0'
if n == 0 then return {0, lost, copied, rotten, cancelled, total} end

local ours, from, to, step = {}, ARGV[10], ARGV[#ARGV - 2], n + 100
repeat
  -- Without a group nothing is pending: all is lost, and the reader makes the group again.
  local rows = redis.pcall('XPENDING', key, group, from, to, step, me)
  if rows.err then rows = {} end
  for _, row in ipairs(rows) do ours[row[1]] = row[4] end
  if #rows > 0 then from = '(' .. rows[#rows][1] end
until #rows < step

-- An entry that is ours, has its body and was copied before costs no look at its task: half of what a beat costs. Only
-- when somebody was cancelled since the last look does it look at all of them.
local look = ARGV[9] ~= total
local has = bodies(key, ARGV[10])
local claim, again = {'XCLAIM', key, group, me, 0}, {'XCLAIM', key, group, me, 0}
for i = 10, #ARGV, 3 do
  local id, name = ARGV[i], ARGV[i + 1]
  local task, eid, eunit, state, run, owner = nil, nil, nil, false, false, false
  if name ~= '' and (look or ARGV[i + 2] ~= '1' or not ours[id]) then
    eid, eunit = string.match(name, '^([^:]*):(.*)$')
    task = P .. 'task:' .. eid
    local had = redis.call('HMGET', task, field(eunit, 'state'), field(eunit, 'run'), 'owner')
    state, run, owner = had[1], had[2], had[3]
  end
  if ours[id] then
    if not has(id) then
      gone(P, key, group, id, ours[id], name ~= '' and name, ms, keep)
      rotten[#rotten + 1] = id
    else
      claim[#claim + 1] = id
      if state == 'CANCELLED' then
        cancelled[#cancelled + 1] = name
        cancelled[#cancelled + 1] = get(task, field(eunit, 'error')) or ''
      end
      -- Only what runs is copied: what has not begun has no record whose end would remove the copy.
      if ARGV[i + 2] ~= '1' and state == 'RUNNING' then
        if redis.call('HEXISTS', task .. ':body', eunit) == 0 then
          local flat = body(key, id)
          local origin = id
          if key ~= ARGV[8] then origin = control(flat, 'weir.origin') or '' end
          flat = with_control(flat, unescape(eid), origin, redis.call('HGET', task, field(eunit, 'wake')) or 0)
          redis.call('HSET', task .. ':body', eunit, pack_fields(flat))
        end
        redis.call('HSET', P .. 'saved', key .. '\0' .. id, name)
        copied[#copied + 1] = id
      end
    end
  else
    -- A foreigner's XGROUP DELCONSUMER or XACK drops what is pending without a trace. If nobody has the entry and its unit
    -- runs here, or waits here to begin, it is put back: nobody would ever be given it again.
    local here = state == 'RUNNING' and string.match(run or '', '^[^:]*') == inc
      or task and (not state or state == 'PENDING') and (not owner or owner == inc)
    if here and not pending(key, group, id) and has(id) then
      again[#again + 1] = id
    else
      lost[#lost + 1] = id
    end
  end
end
if #copied > 0 then redis.call('PEXPIRE', P .. 'saved', week) end
if #claim > 5 then
  claim[#claim + 1] = 'JUSTID'
  redis.call(unpack(claim))
end
if #again > 5 then
  for _, word in ipairs({'RETRYCOUNT', 1, 'FORCE', 'JUSTID'}) do again[#again + 1] = word end
  if redis.pcall(unpack(again)).err then
    for i = 6, #again - 4 do lost[#lost + 1] = again[i] end
  end
end
return {0, lost, copied, rotten, cancelled, total}
