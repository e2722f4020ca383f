-- What the stream's own scripts share. Stands after messages.TaskLua and before a script's own text.
-- stream is the public stream, P the group's key prefix, keep the time to live of a dead letter in ms.

-- What vanishes by itself when a group is no longer used: consumer names and the map of saved entries.
local week = 7 * 24 * 3600 * 1000
local day = 24 * 3600 * 1000

local function dict(flat)
  local d = {}
  for i = 1, #flat, 2 do d[flat[i]] = flat[i + 1] end
  return d
end

-- before says whether entry id a comes before b. The halves are 64 bits wide, more than a Lua number holds, so they
-- are compared as text.
local function before(a, b)
  local ams, aseq = string.match(a, '^(%d+)-(%d+)$')
  local bms, bseq = string.match(b, '^(%d+)-(%d+)$')
  if ams == bms then ams, bms = aseq, bseq end
  if #ams ~= #bms then return #ams < #bms end
  return ams < bms
end

-- after is the id that follows; id itself where the arithmetic would not be exact, which only keeps one entry more.
local function after(id)
  local ms, seq = string.match(id, '^(%d+)-(%d+)$')
  if #seq > 15 then return id end
  return string.format('%s-%.0f', ms, seq + 1)
end

-- just_before is the id that precedes; 0-0 where the arithmetic would not be exact, which only replays more.
local function just_before(id)
  local ms, seq = string.match(id, '^(%d+)-(%d+)$')
  if #seq > 15 or #ms > 15 then return '0-0' end
  if seq + 0 > 0 then return string.format('%s-%.0f', ms, seq - 1) end
  if ms + 0 == 0 then return '0-0' end
  return string.format('%.0f-18446744073709551615', ms - 1)
end

-- groups lists the groups of a stream as tables; none where there is no stream.
local function groups(key)
  local rows = redis.pcall('XINFO', 'GROUPS', key)
  if rows.err then
    if string.find(rows.err, 'no such key', 1, true) then return {} end
    error(rows.err)
  end
  local out = {}
  for i, row in ipairs(rows) do out[i] = dict(row) end
  return out
end

local function find(rows, name)
  for _, g in ipairs(rows) do
    if g.name == name then return g end
  end
end

-- ensure makes the group where it is missing: on the public stream at the low-water mark kept in meta, on the inbox
-- at the beginning (what was acknowledged there answers "done" again). It returns the group's epoch, which is another
-- one after each loss: a node that knows an older one has lost what it held.
local function ensure(P, stream, group, inc)
  local made = false
  for _, key in ipairs({stream, P .. 'inbox'}) do
    if not find(groups(key), group) then
      local from = '0-0'
      if key == stream and redis.call('EXISTS', key) == 1 then
        local low = redis.call('HGET', P .. 'meta', 'low')
        -- A stream that was deleted and made anew may have younger ids than the mark when a clock went back.
        if low and not before(dict(redis.call('XINFO', 'STREAM', key))['last-generated-id'], low) then from = low end
      end
      redis.call('XGROUP', 'CREATE', key, group, from, 'MKSTREAM')
      made = true
    end
  end
  local epoch = redis.call('HGET', P .. 'meta', 'epoch')
  if made or not epoch then
    local t = redis.call('TIME') -- to the µs: it may be lost again within a ms
    epoch = string.format('%s.%06d-%s', t[1], t[2], inc)
    redis.call('HSET', P .. 'meta', 'epoch', epoch)
  end
  return epoch
end

-- pending returns an entry's row of the pending list {id, consumer, idle, deliveries}, or nil; of `who` only if given.
local function pending(key, group, id, who)
  local rows
  if who then
    rows = redis.pcall('XPENDING', key, group, id, id, 1, who)
  else
    rows = redis.pcall('XPENDING', key, group, id, id, 1)
  end
  return not rows.err and rows[1] or nil
end

-- bodies returns a function that says whether a pending entry of the stream still has its body. XCLAIM silently drops
-- one that has none, so each claim looks first. Looking copies the body, a megabyte at worst, so where nothing at or
-- after `lowest` was ever deleted (Redis 7.0 keeps count) nobody looks.
local function bodies(key, lowest)
  local info = redis.pcall('XINFO', 'STREAM', key)
  if info.err then return function() return false end end
  local d = dict(info)
  local first, deleted = d['recorded-first-entry-id'], d['max-deleted-entry-id']
  if first and deleted and d.length > 0 and not before(lowest, first) and before(deleted, lowest) then
    return function() return true end
  end
  return function(id) return body(key, id) ~= nil end
end

-- gone settles an entry that is pending and has no body any more, because somebody trimmed or deleted it: rebuilt into
-- the inbox from the copy beside its task, else a dead letter that says so. name may be nil: then only an entry that a
-- heartbeat has saved is known. It returns false when a dead letter was made.
local function gone(P, key, group, id, deliveries, name, ms, keep)
  local member = key .. '\0' .. id
  name = redis.call('HGET', P .. 'saved', member) or name
  local waits, copy, task, eid, eunit = false, nil, nil, nil, nil
  if name then
    eid, eunit = string.match(name, '^([^:]*):(.*)$')
    task = P .. 'task:' .. eid
    -- Committed already: only the acknowledgement is missing.
    local state = redis.call('HGET', task, field(eunit, 'state'))
    waits = final[state] or state == 'WAITING' or redis.call('ZSCORE', P .. 'due', 'r:' .. name)
    copy = not waits and saved(task, eunit)
  end
  if copy then
    local wake = redis.call('HGET', task, field(eunit, 'wake'))
    to_inbox(P, with_control(copy, unescape(eid), control(copy, 'weir.origin') or '', wake or 0))
    note(task, ms, 'rebuilt', 'somebody removed the body of entry ' .. id)
  elseif not waits then
    local detail = 'somebody trimmed or deleted the entry while it was pending, and there was no copy'
    local head = {reason = 'BODY_GONE', detail = detail, stream = key, entry = id, deliveries = deliveries}
    if name then
      head.task_id, head.unit, head.ends = unescape(eid), unescape(eunit), 1
      head.type = redis.call('HGET', task, field(eunit, 'type')) or ''
    end
    letter(P, ms, keep, head)
    if name then fail(P, name, head.type, ms, head.reason, detail, keep) end
  end
  redis.call('XACK', key, group, id)
  redis.call('HDEL', P .. 'saved', member)
  return (copy or waits) and true or false
end

-- settle_entry acknowledges an entry for good; an inbox entry is nobody else's and is deleted with it.
local function settle_entry(P, key, group, id)
  redis.call('XACK', key, group, id)
  if key == P .. 'inbox' then redis.call('XDEL', key, id) end
  redis.call('HDEL', P .. 'saved', key .. '\0' .. id)
end

-- register says that the consumer name and the liveness belong to this incarnation.
local function register(P, me, inc, client, lease, ms)
  local key = P .. 'consumer:' .. escape(me)
  redis.call('HSET', key, 'inc', inc, 'client', client, 'beat', ms)
  redis.call('HDEL', key, 'left')
  redis.call('PEXPIRE', key, week)
  redis.call('SET', P .. 'node:' .. inc, me, 'PX', lease)
end

-- usurped says whether the consumer name belongs to another incarnation.
local function usurped(P, me, inc)
  local owner = redis.call('HGET', P .. 'consumer:' .. escape(me), 'inc')
  return owner and owner ~= inc
end

-- root is what the keys of a stream start with that all its groups share.
local function root(P) return string.match(P, '^(.*:)[^:]*:$') end

-- join_stream adds what was submitted for later to the public stream, however full that is: it was accepted. member is
-- "<escaped id>:<escaped unit>". It returns how many bytes that were; of one whose entry somebody removed a dead letter stays.
local function join_stream(P, stream, member, ms, keep)
  local R = root(P)
  local eid, eunit = string.match(member, '^([^:]*):(.*)$')
  local packed = redis.call('HGET', R .. 'delayed:entries', member)
  if packed then
    local flat = unpack_fields(packed)
    local kept, created, work, kind = tonumber(flat[1]), flat[2], flat[3], flat[4]
    local id = redis.call('XADD', stream, '*', unpack(flat, 5))
    local marker = R .. 'submitted:' .. eid
    redis.call('HSET', marker, eunit, created .. '@' .. id .. ' ' .. work .. ' ' .. kind)
    if redis.call('PTTL', marker) < kept then redis.call('PEXPIRE', marker, kept) end
  else
    letter(P, ms, keep, {reason = 'BODY_GONE', detail = 'to join the stream at its time, and its entry is gone',
      task_id = unescape(eid), unit = unescape(eunit)})
    redis.call('HDEL', R .. 'submitted:' .. eid, eunit)
  end
  redis.call('ZREM', R .. 'delayed', member)
  redis.call('HDEL', R .. 'delayed:entries', member)
  return packed and #packed
end
