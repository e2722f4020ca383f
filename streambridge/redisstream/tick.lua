-- One turn of the clock that every node runs once a second: pulse, trim, promote, sweep, reap, bury the dead consumers.
-- KEYS[1] public stream  KEYS[2] inbox
-- ARGV: P, group, consumer, incarnation, lease ms, room, stray ms, keep ms, sweep (1 to look for strays), quota (how many
--   orphans this turn may still take, -1 for its fair share), client id, types (packed), host, pid,
--   id of the last cancellation that we heard of ("" before the first tick),
--   limits of the gate (gate.lua; 0 for none): age in ms, pending, lag, length, memory,
--   how many abandoned steps still run here
-- Returns {1} when the consumer name is another's, else {0, epoch, own pending, claimed, strays, buried, promoted, trimmed,
--   unserved, orphans left, calm, missed, live nodes, more, quota left, drained, names of units that were
--   cancelled while they ran here and why in turn, id of the last cancellation, joined, gate (gate_read)}; claimed, strays and drained are
--   lists of
--   {stream (1 or 2), id, deliveries, fields, saved (1 or 0)}, buried of {stream, id}.
-- Atomic because each part looks before it acts, and between the two another node may act on the same entry, retry or
-- consumer. Nearly all that is handed out comes last: if anything before fails, nothing has been claimed. Repeated, it
-- goes on where it was; what a lost reply handed out is a stray after a while.
local stream, inbox = KEYS[1], KEYS[2]
local P, group, me, inc, lease = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
local room, stray, keep = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
local meta, due, name = P .. 'meta', P .. 'due', P .. 'consumer:' .. escape(me)
local minute, most, most_bytes = 60000, 200, 4194304 -- most: of each kind of work in one script: some ms of the server's time
local bytes = 0 -- of what is handed out
if usurped(P, me, inc) then return {1} end
local ms = now_ms()
local epoch = ensure(P, stream, group, inc)
-- Forgotten when somebody emptied the server.
if redis.call('EXISTS', name) == 0 then
  register(P, me, inc, ARGV[11], lease, ms)
else
  redis.call('HSET', name, 'client', ARGV[11])
end

-- Pulse. After half a lease without any tick nobody could renew: everybody counts as alive for one more lease.
local facts = redis.call('HMGET', meta, 'pulse', 'calm_until', 'low', 'missed', 'cursor', 'hole', 'pass')
local calm_until = tonumber(facts[2] or 0)
if facts[1] and ms - facts[1] > lease / 2 then
  calm_until = ms + lease
  redis.call('HSET', meta, 'calm_until', calm_until)
end
local calm = calm_until > ms
redis.call('HSET', meta, 'pulse', ms)
local life = P .. 'life:' .. inc
redis.call('HSET', life, 'tick', ms, 'consumer', me, 'types', ARGV[12], 'host', ARGV[13], 'pid', ARGV[14],
  'stuck', ARGV[21])
redis.call('PEXPIRE', life, day)
redis.call('ZADD', P .. 'nodes', ms, inc)
redis.call('ZREMRANGEBYSCORE', P .. 'nodes', '-inf', ms - day)

local function is_live(node)
  return node and (calm or redis.call('EXISTS', P .. 'node:' .. node) == 1)
end
local live = {}
for _, node in ipairs(redis.call('ZRANGEBYSCORE', P .. 'nodes', ms - lease, '+inf')) do
  if node == inc or redis.call('EXISTS', P .. 'node:' .. node) == 1 then live[#live + 1] = node end
end

-- Who was cancelled since the last tick. A node that has just come runs nothing; what the capped stream has dropped, the
-- beat finds.
local more, cancelled, heard = false, {}, ARGV[15]
if heard == '' then
  local newest = redis.call('XREVRANGE', P .. 'cancels', '+', '-', 'COUNT', 1)
  heard = newest[1] and newest[1][1] or '0-0'
else
  local told = redis.call('XRANGE', P .. 'cancels', '(' .. heard, '+', 'COUNT', most)
  for _, e in ipairs(told) do
    local c = dict(e[2])
    if c.inc == inc then
      cancelled[#cancelled + 1] = c.unit
      cancelled[#cancelled + 1] = c.why
    end
    heard = e[1]
  end
  more = #told == most
end

-- Trim, exactly: nothing that any group has not acknowledged.
local trimmed, missed = 0, 0
for i, key in ipairs({stream, inbox}) do
  local rows = groups(key)
  local least, reached
  for _, g in ipairs(rows) do
    local first, last = after(g['last-delivered-id']), g['last-delivered-id']
    if g.pending > 0 then first = redis.call('XPENDING', key, g.name)[2] end
    if not least or before(first, least) then least = first end
    if not reached or before(last, reached) then reached = last end
    if i == 1 and g.name == group then
      local low = last
      if g.pending > 0 then low = just_before(first) end
      if low ~= facts[3] then redis.call('HSET', meta, 'low', low) end
      -- Entries that are neither in the stream nor were ever given to us: somebody trimmed them undelivered.
      local info, read = dict(redis.call('XINFO', 'STREAM', key)), g['entries-read']
      if type(read) == 'number' and info['entries-added'] then
        local lost, told = math.max(info['entries-added'] - info.length - read, 0), tonumber(facts[4] or 0)
        missed = math.max(lost - told, 0)
        if lost ~= told then redis.call('HSET', meta, 'missed', lost) end
      end
    end
  end
  trimmed = trimmed + redis.call('XTRIM', key, 'MINID', least)
  -- Behind an entry that takes long the acknowledged ones would pile up until Submit is refused, and outlive the records
  -- that say they are done. They are deleted one by one, in passes of which one begins a minute.
  if i == 1 and tonumber(string.match(least, '^%d+')) < ms - minute and before(least, reached) then
    local from, began = facts[6] or '', tonumber(facts[7] or 0)
    if from == '' and ms - began >= minute then
      from = '(' .. least
      redis.call('HSET', meta, 'pass', ms)
    end
    if from ~= '' then
      local found = redis.call('XRANGE', key, from, reached, 'COUNT', most)
      local to, waits, done = found[#found] and found[#found][1], {}, {}
      -- All of the range: bodiless ones make it longer than what was found.
      for _, g in ipairs(rows) do
        if to and g.pending > 0 then
          for _, row in ipairs(redis.call('XPENDING', key, g.name, from, to, 1000000)) do waits[row[1]] = true end
        end
      end
      for _, e in ipairs(found) do
        if not waits[e[1]] then done[#done + 1] = e[1] end
      end
      if #done > 0 then trimmed = trimmed + redis.call('XDEL', key, unpack(done)) end
      local on = #found == most
      more = more or on
      redis.call('HSET', meta, 'hole', on and '(' .. to or '')
    end
  end
end
if redis.call('EXISTS', P .. 'dead') == 1 then
  redis.call('XTRIM', P .. 'dead', 'MINID', string.format('%.0f', math.max(ms - keep, 0)))
end

-- Promote what is due.
local promoted, buried = 0, {}
local ripe = redis.call('ZRANGEBYSCORE', due, '-inf', ms, 'LIMIT', 0, most)
for _, member in ipairs(ripe) do
  local what, rest = string.match(member, '^(%a):(.*)$')
  if what == 'r' then
    local eid, eunit = string.match(rest, '^([^:]*):(.*)$')
    local task = P .. 'task:' .. eid
    local had = redis.call('HMGET', task, field(eunit, 'state'), field(eunit, 'wake'), field(eunit, 'type'))
    local waits = had[1] == 'RETRYING' or had[1] == 'SCHEDULED'
    local copy = waits and saved(task, eunit)
    if copy then
      to_inbox(P, with_control(copy, unescape(eid), control(copy, 'weir.origin') or '', had[2] or 0))
      promoted = promoted + 1
    elseif waits then
      local detail = (had[1] == 'RETRYING' and 'to be retried' or 'to be run at its time') .. ', and the copy of its entry is gone'
      letter(P, ms, keep, {reason = 'BODY_GONE', detail = detail, task_id = unescape(eid), unit = unescape(eunit),
        type = had[3] or '', ends = 1})
      fail(P, rest, had[3] or '', ms, 'BODY_GONE', detail, keep)
    end
    redis.call('ZREM', due, member)
  elseif what == 'c' then
    -- What hung on a cancelled unit.
    local eid, eunit = string.match(rest, '^([^:]*):(.*)$')
    if redis.call('HEXISTS', P .. 'task:' .. eid, field(eunit, 'state')) == 1 then
      cancel_unit(P, eid, eunit, ms, keep, 'its parent was cancelled', '')
    end
    redis.call('ZREM', due, member)
  elseif what == 'w' then
    local eid, eunit, ename = string.match(rest, '^([^:]*):([^:]*):(.*)$')
    local task = P .. 'task:' .. eid
    if look_at(P, task, eunit, ename, ms) and wake(P, task, eunit, ms, keep) then promoted = promoted + 1 end
    redis.call('ZREM', due, member)
  elseif what == 'q' then
    local task = P .. 'task:' .. rest
    local had = redis.call('HMGET', task, 'owner', 'queued')
    if not is_live(had[1]) then disown(P, task, had[2]) end
    if redis.call('EXISTS', task .. ':waiting') == 1 then
      redis.call('ZADD', due, ms + lease, member)
    else
      redis.call('ZREM', due, member)
    end
  else
    redis.call('ZREM', due, member)
  end
end
more = more or #ripe == most

-- What was submitted for later joins the public stream, by whichever group's tick.
local joined, joined_bytes = 0, 0
local later = redis.call('ZRANGEBYSCORE', root(P) .. 'delayed', '-inf', ms, 'LIMIT', 0, most)
for _, member in ipairs(later) do
  local size = join_stream(P, stream, member, ms, keep)
  if size then joined, joined_bytes = joined + 1, joined_bytes + size end
  if joined_bytes > most_bytes then break end
end
more = more or #later == most or joined_bytes > most_bytes

-- Agent types whose readers lacked them: drain ours, name those that no live node has. What is drained is handed to this
-- node in the same breath: whoever reads the inbox next may be one that lacks the type again, and so on for ever.
local unserved, drained, taken = {}, 0, {}
local waiting = redis.call('SMEMBERS', P .. 'types')
table.sort(waiting)
if #waiting > 0 then
  local ours, theirs = {}, {}
  for _, t in ipairs(unpack_fields(ARGV[12])) do ours[t] = true end
  for _, node in ipairs(live) do
    for _, t in ipairs(unpack_fields(redis.call('HGET', P .. 'life:' .. node, 'types') or '')) do theirs[t] = true end
  end
  for _, t in ipairs(waiting) do
    local key = P .. 'type:' .. escape(t)
    if ours[t] then
      local want = math.min(most, room) - drained
      for _, e in ipairs(want > 0 and redis.call('XRANGE', key, '-', '+', 'COUNT', want) or {}) do
        if bytes > most_bytes then break end
        to_inbox(P, e[2])
        redis.call('XDEL', key, e[1])
        drained = drained + 1
        for _, v in ipairs(e[2]) do bytes = bytes + #v end
      end
    end
    if redis.call('XLEN', key) == 0 then
      redis.call('DEL', key)
      redis.call('SREM', P .. 'types', t)
    elseif drained >= most or bytes > most_bytes then
      more = true
      break
    elseif not theirs[t] then
      unserved[#unserved + 1] = t
    end
  end
  if drained > 0 then
    local new = redis.call('XREADGROUP', 'GROUP', group, me, 'COUNT', drained, 'STREAMS', inbox, '>')
    for _, e in ipairs(new and new[1][2] or {}) do taken[#taken + 1] = {2, e[1], 1, e[2], 0} end
    room = room - #taken
  end
end

-- Copies whose entries were settled by somebody who did not know of them.
if redis.call('EXISTS', P .. 'saved') == 1 then
  local found = redis.call('HSCAN', P .. 'saved', facts[5] or '0', 'COUNT', 10)
  redis.call('HSET', meta, 'cursor', found[1])
  for i = 1, math.min(#found[2], 40), 2 do
    local key, id = string.match(found[2][i], '^(.*)%z(.-)$')
    if not pending(key, group, id) then redis.call('HDEL', P .. 'saved', found[2][i]) end
  end
end

-- Who is there. A consumer lives while its incarnation does; one that left in order does not, calm or no calm.
local dead, mine, orphans = {}, 0, 0
local known = {}
for i, key in ipairs({stream, inbox}) do
  for _, row in ipairs(redis.call('XINFO', 'CONSUMERS', key, group)) do
    local c = dict(row)
    if c.name == me then
      mine = mine + c.pending
    else
      local k = known[c.name]
      if not k then
        local had = redis.call('HMGET', P .. 'consumer:' .. escape(c.name), 'inc', 'left')
        k = {name = c.name, pending = {0, 0}, live = is_live(had[1]) or (calm and not had[2])}
        known[c.name] = k
        if not k.live then dead[#dead + 1] = k end
      end
      k.pending[i] = c.pending
      if not k.live then orphans = orphans + c.pending end
    end
  end
end
for _, c in ipairs(dead) do
  if c.pending[1] + c.pending[2] == 0 then
    redis.call('XGROUP', 'DELCONSUMER', stream, group, c.name)
    redis.call('XGROUP', 'DELCONSUMER', inbox, group, c.name)
    redis.call('DEL', P .. 'consumer:' .. escape(c.name))
  end
end

local gate = gate_look(P, stream, inbox, group, ms,
  {tonumber(ARGV[16]), tonumber(ARGV[17]), tonumber(ARGV[18]), tonumber(ARGV[19]), tonumber(ARGV[20])})

-- Hand out. Bodies are looked at first: XCLAIM silently drops an entry without one.
local function hand_out(list, i, row, deliveries)
  local key, id = KEYS[i], row[1]
  local flat = body(key, id)
  if not flat then
    if not gone(P, key, group, id, row[4], nil, ms, keep) then buried[#buried + 1] = {i, id} end
    return
  end
  redis.call('XCLAIM', key, group, me, 0, id, 'RETRYCOUNT', deliveries, 'JUSTID')
  for _, v in ipairs(flat) do bytes = bytes + #v end
  list[#list + 1] = {i, id, deliveries, flat, redis.call('HEXISTS', P .. 'saved', key .. '\0' .. id)}
end

local strays = {}
if ARGV[9] == '1' then
  for i, key in ipairs(KEYS) do
    local want = math.min(room - #strays, most - #strays)
    if want > 0 then
      local rows = redis.call('XPENDING', key, group, 'IDLE', stray, '-', '+', want, me)
      for n, row in ipairs(rows) do
        hand_out(strays, i, row, row[4])
        if bytes > most_bytes then break end
      end
      more = more or #rows == want and want < room - #strays or bytes > most_bytes
    end
  end
end

local claimed = {}
room = room - #strays
local quota = tonumber(ARGV[10])
-- A share is one of the crowd, and each node takes one in its turn. One of what the others left would halve from tick to
-- tick: a hundred entries between two nodes would take seven of them. So the first to take says how many a share is, for
-- the time in which every node ticks, and what it took for.
local turn = quota < 0 and orphans > 0
local share, share_at, known_at = math.ceil(orphans / math.max(#live, 1)), string.format('%d', ms), nil
if turn then
  quota = share
  local known = redis.call('HMGET', meta, 'share', 'share_at')
  known_at = known[2]
  if ms - tonumber(known_at or 0) < lease / 2 then
    share_at = known_at
    if redis.call('HGET', life, 'took') == share_at then turn = false else quota = math.max(share, tonumber(known[1])) end
  end
end
quota = math.max(math.min(quota, room), 0)
for _, c in ipairs(dead) do
  for i, key in ipairs(KEYS) do
    local want = math.min(quota, most - #claimed)
    if c.pending[i] > 0 and want > 0 and bytes <= most_bytes then
      for _, row in ipairs(redis.call('XPENDING', key, group, 'IDLE', lease, '-', '+', want, c.name)) do
        if bytes > most_bytes then break end
        hand_out(claimed, i, row, row[4] + 1)
        quota = quota - 1
        orphans = orphans - 1
      end
    end
  end
end
if turn and #claimed > 0 then
  if share_at ~= known_at then redis.call('HSET', meta, 'share', share, 'share_at', share_at) end
  redis.call('HSET', life, 'took', share_at)
end
if quota > 0 and (#claimed == most or bytes > most_bytes) then more = true else quota = -1 end

return {0, epoch, mine, claimed, strays, buried, promoted, trimmed, unserved, orphans, calm and 1 or 0, missed, #live,
  more and 1 or 0, quota, taken, cancelled, heard, joined, gate}
