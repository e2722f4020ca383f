-- What a unit waits for, and how a wait or a unit ends. Stands behind task.lua.
-- eid, eunit and ename are the escaped names of a task, a unit and a wait; keep is the time to live in ms of a dead letter.

-- read_wait takes an open wait apart (messages.EncodeWait); a slot is "<escaped message name>:<number>".
local function read_wait(packed)
  local w, flat = {slots = {}, children = {}}, unpack_fields(packed)
  for i = 1, #flat, 2 do
    local name, value = flat[i], flat[i + 1]
    if name == 'slot' then
      w.slots[#w.slots + 1] = value
    elseif name == 'child' then
      w.children[#w.children + 1] = value
    else
      w[name] = value
    end
  end
  return w
end

-- holds says whether a packed wait has that slot, without taking it apart.
local function holds(packed, slot) return string.find(packed, 'slot,' .. #slot .. ':' .. slot .. ',', 1, true) end

-- open_waits finds the open waits that have a slot: {field, packed}, in an order that is the same on every server.
local function open_waits(task, slot)
  local flat, found = redis.call('HGETALL', task .. ':waits'), {}
  for i = 1, #flat, 2 do
    if holds(flat[i + 1], slot) then found[#found + 1] = {flat[i], flat[i + 1]} end
  end
  table.sort(found, function(a, b) return a[1] < b[1] end)
  return found
end

-- untie is called by every script that ends a unit of a task with `ties`, once its final state is written: what stands
-- outside for the unit goes, who waits for its end hears of it.
local function untie(P, task, eunit)
  local head, eid = eunit .. ':', string.sub(task, #P + 6)
  for _, f in ipairs(redis.call('HKEYS', task .. ':waits')) do
    if string.sub(f, 1, #head) == head then
      redis.call('HDEL', task .. ':waits', f)
      redis.call('ZREM', P .. 'due', 'w:' .. eid .. ':' .. f)
    end
  end
end

-- in_doubt says that nobody knows whether the effect of a WAITING unit's step happened: a person settles it.
local function in_doubt(P, task, eunit, step, ms)
  redis.call('HSET', task, field(eunit, 'doubt'), step)
  redis.call('HDEL', task, field(eunit, 'resolved'))
  redis.call('ZADD', P .. 'doubts', ms, string.sub(task, #P + 6) .. ':' .. eunit)
end

-- no_doubt ends that.
local function no_doubt(P, task, eunit)
  if redis.call('HDEL', task, field(eunit, 'doubt')) == 1 then
    redis.call('ZREM', P .. 'doubts', string.sub(task, #P + 6) .. ':' .. eunit)
  end
end

-- fail ends a unit that has not ended: FAILED, its fence raised so that whoever runs it is refused, its slots given
-- up, what waits for the task let through: unless somebody is at another unit of it. name is
-- "<escaped id>:<escaped unit>".
local function fail(P, name, agent_type, ms, reason, detail, keep)
  local eid, eunit = string.match(name, '^([^:]*):(.*)$')
  local task = P .. 'task:' .. eid
  local had = redis.call('HMGET', task, field(eunit, 'state'), field(eunit, 'type'), field(eunit, 'run'), 'fence',
    'owner', 'ties')
  local state, run, owner = had[1], had[3], had[5]
  if final[state] then return end
  agent_type = had[2] or agent_type
  if not state then
    if had[4] then opened(task) end
    redis.call('HSET', task, field(eunit, 'created'), ms)
    put(task, field(eunit, 'type'), agent_type)
  end
  redis.call('HINCRBY', task, 'fence', 1)
  redis.call('HSET', task, field(eunit, 'state'), 'FAILED', field(eunit, 'updated'), ms, field(eunit, 'reason'), reason)
  put(task, field(eunit, 'error'), detail)
  no_doubt(P, task, eunit)
  index_ended(P, escape(agent_type), name, state, 'FAILED', ms, keep)
  redis.call('ZREM', P .. 'due', 'r:' .. name)
  end_trial(P, run, name)
  redis.call('HINCRBY', P .. 'counts', 'failed', 1)
  redis.call('HDEL', task .. ':body', eunit)
  note(task, ms, 'failed', reason .. ' ' .. detail)
  if not owner or state == 'RUNNING' and owner == incarnation(run) then disown(P, task) end
  if had[6] then untie(P, task, eunit) end
  closed(task, keep)
end

-- cancel_unit ends a unit as CANCELLED, whatever it was doing. It returns the state that it had, PENDING for one without a
-- record: that gets one, which Begin answers with when the entry comes. A unit that has ended is left alone; then the
-- second value is true. why and by are for people, keep is how long the record is kept, in ms. known is what is known of a
-- unit without a record: {type = …, work = … or nil, created = ms or nil, state = … or nil}.
local function cancel_unit(P, eid, eunit, ms, keep, why, by, known)
  local task, member, u = P .. 'task:' .. eid, eid .. ':' .. eunit, field(eunit, '')
  local had = redis.call('HMGET', task, u .. 'state', u .. 'run', 'fence', 'owner', 'ties')
  local state, run, owner = had[1], had[2], had[4]
  if final[state] then return state, true end
  local kind = known and known.type or ''
  if state then
    kind = get(task, u .. 'type') or kind
  else
    if had[3] then opened(task) end
    redis.call('HSET', task, u .. 'created', known.created or ms)
    if known.work then redis.call('HSET', task, u .. 'work', known.work) end
    put(task, u .. 'type', kind)
  end
  redis.call('HINCRBY', task, 'fence', 1)
  redis.call('HSET', task, u .. 'state', 'CANCELLED', u .. 'updated', ms)
  redis.call('HDEL', task, u .. 'reason') -- of one that was condemned
  put(task, u .. 'error', why)
  no_doubt(P, task, eunit)
  note(task, ms, 'cancelled', why .. (by ~= '' and ' (by ' .. by .. ')' or ''))
  index_ended(P, escape(kind), member, state, 'CANCELLED', ms, keep)
  redis.call('ZREM', P .. 'due', 'r:' .. member)
  redis.call('HDEL', task .. ':body', eunit)
  redis.call('HINCRBY', P .. 'counts', 'cancelled', 1)
  end_trial(P, run, member)
  if state == 'RUNNING' then
    redis.call('XADD', P .. 'cancels', 'MAXLEN', '~', 1000, '*', 'inc', incarnation(run), 'unit', member, 'why', why)
    redis.call('PEXPIRE', P .. 'cancels', 3600000)
  end
  -- Another unit may be at work under the owner.
  if not owner or state == 'RUNNING' and owner == incarnation(run) then disown(P, task) end
  if had[5] then untie(P, task, eunit) end
  closed(task, keep)
  return state or known.state or 'PENDING', false
end

-- cancel_later lets the next tick cancel a unit: what hangs on a cancelled one may be more than a script should end.
local function cancel_later(P, member, ms) redis.call('ZADD', P .. 'due', ms, 'c:' .. member) end

-- wake lets a WAITING unit go on: PENDING, and the copy of its entry in the inbox under its wake number. A unit in another
-- state sees by itself what has happened when it runs next, and one in doubt is a person's to wake. It says whether the
-- unit goes on; without a copy it has FAILED, as a retry does.
local function wake(P, task, eunit, ms, keep)
  local had = redis.call('HMGET', task, field(eunit, 'state'), field(eunit, 'doubt'), field(eunit, 'wake'), field(eunit, 'fence_at'))
  if had[1] ~= 'WAITING' or had[2] then return false end
  local eid = string.sub(task, #P + 6)
  local name, kind = eid .. ':' .. eunit, get(task, field(eunit, 'type')) or ''
  local copy = saved(task, eunit)
  if not copy then
    local detail = 'what it waited for is there, and the copy of its entry is gone'
    letter(P, ms, keep, {reason = 'BODY_GONE', detail = detail, wake = had[3], task_id = unescape(eid), unit = unescape(eunit), type = kind,
      ends = 1})
    fail(P, name, kind, ms, 'BODY_GONE', detail, keep)
    return false
  end
  to_inbox(P, with_control(copy, unescape(eid), control(copy, 'weir.origin') or '', had[3] or 0))
  -- Who parked it may ask again: its reply was lost, not its lease.
  redis.call('HSET', task, field(eunit, 'state'), 'PENDING', field(eunit, 'updated'), ms, field(eunit, 'woken'), had[4] or '0')
  index(P, escape(kind), name, 'WAITING', 'PENDING', ms)
  return true
end

-- over says how a wait has ended, as the flat fields of its checkpoint (messages.EncodeWaited); nil while it goes on. ripe
-- says that its time is over. A slot that another wait's end has closed gets no message any more.
local function over(task, w, ripe)
  local mail, there, first, least, shut = task .. ':mail', {}, nil, nil, 0
  for i, slot in ipairs(w.slots) do
    local size = redis.call('HSTRLEN', mail, 'm:' .. slot)
    if size == 1 then
      shut = shut + 1
    elseif size > 0 then
      there[#there + 1] = i
      if w.kind == 'first' then
        local arrival = tonumber(string.match(redis.call('HGET', mail, 'm:' .. slot), '^%d+'))
        if not least or arrival < least then first, least = i, arrival end
      end
    end
  end
  local flat, timeout = {}, false
  if first then
    there = {first}
  elseif w.kind ~= 'all' or #there < #w.slots then
    local hopeless = w.kind == 'all' and shut > 0 or w.kind == 'first' and shut == #w.slots
    if not ripe and not hopeless then return nil end
    flat, timeout = {'timeout', '1'}, true
  end
  for _, i in ipairs(there) do
    local kept = redis.call('HGET', mail, 'm:' .. w.slots[i])
    flat[#flat + 1] = tostring(i - 1)
    flat[#flat + 1] = string.sub(kept, string.find(kept, ' ', 1, true) + 1)
    if redis.call('HSETNX', mail, 'r:' .. w.slots[i], '1') == 1 then redis.call('HINCRBY', mail, 'unread', -1) end
  end
  return flat, timeout
end

-- end_wait writes the checkpoint of a wait that is over and takes away what stood for it. A time that is over closes the
-- slots where the wait says so; not one for which another wait still hopes.
local function end_wait(P, task, eunit, ename, w, flat, timeout, ms)
  local eid, f = string.sub(task, #P + 6), eunit .. ':' .. ename
  local value = pack_fields(flat)
  put(task, field(eunit, 'step:' .. ename), string.format('waited 1 %s %d 0 %d \n', w.since, ms, #value) .. value)
  redis.call('HSET', task, field(eunit, 'steps'), '1')
  redis.call('HDEL', task .. ':waits', f)
  redis.call('ZREM', P .. 'due', 'w:' .. eid .. ':' .. f)
  if timeout and w.closes then
    local others = redis.call('HVALS', task .. ':waits')
    for _, slot in ipairs(w.slots) do
      local hoped = false
      for _, packed in ipairs(others) do hoped = hoped or holds(packed, slot) end
      if not hoped then redis.call('HSETNX', task .. ':mail', 'm:' .. slot, '-') end
    end
  end
  note(task, ms, not timeout and 'answered' or w.kind == 'timer' and 'slept' or 'timed_out', string.sub(unescape(ename), 1, 300))
end

-- look_at ends an open wait if it is over, and says whether it was.
local function look_at(P, task, eunit, ename, ms)
  local packed = redis.call('HGET', task .. ':waits', eunit .. ':' .. ename)
  if not packed then return false end
  local at = redis.call('ZSCORE', P .. 'due', 'w:' .. string.sub(task, #P + 6) .. ':' .. eunit .. ':' .. ename)
  local w = read_wait(packed)
  local flat, timeout = over(task, w, at and tonumber(at) <= ms)
  if not flat then return false end
  end_wait(P, task, eunit, ename, w, flat, timeout, ms)
  return true
end

-- open_all opens what a commit waits for, where it is neither open nor over, and looks at each: packed is {name, "<ms or -1>
-- <the wait without its begin>", …}. It says whether any of them is over.
local function open_all(P, task, eunit, packed, ms)
  local list, some, new = unpack_fields(packed), false, false
  for i = 1, #list, 2 do
    local ename, f = list[i], eunit .. ':' .. list[i]
    local step = field(eunit, 'step:' .. ename)
    if redis.call('HEXISTS', task, step) == 1 or redis.call('HEXISTS', task .. ':long', step) == 1 then
      some = true
    else
      local span, wait = string.match(list[i + 1], '^(%-?%d+) (.*)$')
      local since = pack_fields({'since', string.format('%d', ms)})
      if redis.call('HSETNX', task .. ':waits', f, since .. wait) == 1 then
        new = true
        if tonumber(span) >= 0 then
          redis.call('ZADD', P .. 'due', ms + span, 'w:' .. string.sub(task, #P + 6) .. ':' .. f)
        end
      end
    end
  end
  if new then
    redis.call('HSET', task, 'ties', '1')
    redis.call('PERSIST', task .. ':mail')
  end
  for i = 1, #list, 2 do
    if look_at(P, task, eunit, list[i], ms) then some = true end
  end
  return some
end

-- is_over says whether a task has ended: its record is there, and none of its units is open or waits to be.
local function is_over(task)
  local left = redis.call('PTTL', task)
  if left ~= -1 then return left >= 0 end
  local had = redis.call('HMGET', task, 'open', 'keep')
  return had[1] == '0' and not had[2]
end

-- refused notes a message to a task that has ended; one line stands for any number of one name.
local function refused(task, ename, ms)
  local what = string.format('message %s: the task has ended', string.sub(unescape(ename), 1, 300))
  local last = redis.call('LINDEX', task .. ':log', -1)
  if last and string.match(last, '^%d+ (.*)$') == 'refused ' .. what then return end
  note(task, ms, 'refused', what)
  local left = redis.call('PTTL', task)
  if left >= 0 then redis.call('PEXPIRE', task .. ':log', left) end
end

-- send gives a task a message: it is recorded once, in the order of its name, and ends the waits that it fills; their units
-- go on. id is the escaped message id, "" for none: then the first of a name is the only one. ttl is how long it is kept, in
-- ms, for a task that has waited for nothing. It returns {what, number}:
--   1 taken   2 the same message was taken before   3 another was first, or its time is over   4 the task has ended
--   5 there are `most` messages that nobody has read
local function send(P, task, ename, id, content_type, payload, ttl, most, ms, keep)
  local mail, text = task .. ':mail', content_type .. '\n' .. payload
  local count = tonumber(redis.call('HGET', mail, 'n:' .. ename) or 0)
  local slot = string.format('%s:%d', ename, count + 1)
  local hit = {}
  for _, w in ipairs(open_waits(task, slot)) do
    local eunit, name = string.match(w[1], '^([^:]*):(.*)$')
    local at = redis.call('ZSCORE', P .. 'due', 'w:' .. string.sub(task, #P + 6) .. ':' .. w[1])
    if not at or tonumber(at) > ms then
      hit[#hit + 1] = {eunit, name}
    elseif look_at(P, task, eunit, name, ms) then -- its time is over, and no tick has seen it yet
      wake(P, task, eunit, ms, keep)
    end
  end
  if is_over(task) then
    refused(task, ename, ms)
    return {4, 0}
  end
  if id ~= '' then
    local known = redis.call('HGET', mail, 'i:' .. ename .. ':' .. id)
    if known then return {2, tonumber(known)} end
  elseif count > 0 then
    local first = redis.call('HGET', mail, 'm:' .. ename .. ':1') or ''
    return {string.sub(first, (string.find(first, ' ', 1, true) or 0) + 1) == text and 2 or 3, 1}
  end
  if redis.call('HSTRLEN', mail, 'm:' .. slot) > 0 then return {3, count + 1} end
  if tonumber(redis.call('HGET', mail, 'unread') or 0) >= most then return {5, 0} end
  local arrival = redis.call('HINCRBY', mail, 'arrivals', 1)
  redis.call('HSET', mail, 'n:' .. ename, count + 1, 'm:' .. slot, arrival .. ' ' .. text)
  redis.call('HINCRBY', mail, 'unread', 1)
  if id ~= '' then redis.call('HSET', mail, 'i:' .. ename .. ':' .. id, count + 1) end
  if redis.call('HEXISTS', task, 'ties') == 1 then
    redis.call('PERSIST', mail)
  else
    redis.call('PEXPIRE', mail, math.max(redis.call('PTTL', mail), ttl))
  end
  for _, h in ipairs(hit) do
    if look_at(P, task, h[1], h[2], ms) then wake(P, task, h[1], ms, keep) end
  end
  return {1, count + 1}
end
