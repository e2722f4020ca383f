-- Limits of how many units run at once. Stands behind task.lua; layout.go tells the keys. keep is the time to live in ms of a
-- dead letter, nil for 30 days. name is that of a limit (actors.Limited), member "<escaped id>:<escaped unit>".

local fail -- in wait.lua

-- limit_room says how many more may begin under a limit. Those that were called a moment ago are on their way and count; one
-- that does not come soon is not waited for: its entry may stand where nobody runs it.
local function limit_room(P, name, most, ms)
  return most - redis.call('SCARD', P .. 'limit:' .. name) - redis.call('ZCOUNT', P .. 'called:' .. name, ms - 5000, '+inf')
end

-- limit_advance calls as many from the head of a limit's line as there is room for: the copies of their entries go to the
-- inbox. One that has ended meanwhile is passed over; one without a copy has FAILED, as a retry does.
local function limit_advance(P, name, ms, keep)
  local most = tonumber(redis.call('HGET', P .. 'lines', name) or nil)
  if not most then return end
  local line, called = P .. 'line:' .. name, P .. 'called:' .. name
  for _ = 1, math.min(limit_room(P, name, most, ms), 200) do
    local member = redis.call('ZPOPMIN', line)[1]
    if not member then break end
    local eid, eunit = string.match(member, '^([^:]*):(.*)$')
    local task = P .. 'task:' .. eid
    local had = redis.call('HMGET', task, field(eunit, 'state'), field(eunit, 'wake'), field(eunit, 'type'))
    local copy = had[1] == 'PENDING' and saved(task, eunit)
    if copy then
      to_inbox(P, with_control(copy, unescape(eid), control(copy, 'weir.origin') or '', had[2] or 0))
      redis.call('ZREMRANGEBYSCORE', called, '-inf', ms - 60000)
      redis.call('ZADD', called, ms, member)
      redis.call('PEXPIRE', called, 60000)
    elseif had[1] == 'PENDING' then
      local detail = 'its turn under a limit had come, and the copy of its entry is gone'
      keep = keep or 30 * 86400000
      letter(P, ms, keep, {reason = 'BODY_GONE', detail = detail, wake = had[2], task_id = unescape(eid), unit = unescape(eunit),
        type = had[3] or ''})
      fail(P, member, had[3] or '', ms, 'BODY_GONE', detail, keep)
    end
  end
  if redis.call('EXISTS', line) == 0 then
    redis.call('HDEL', P .. 'lines', name)
    redis.call('ZREM', P .. 'due', 'l:' .. name)
  end
end

-- limit_join puts a unit into a limit's line, by its number: who was there first goes first.
local function limit_join(P, name, most, member, number, ms)
  redis.call('ZADD', P .. 'line:' .. name, number, member)
  redis.call('HSET', P .. 'lines', name, most)
  redis.call('ZADD', P .. 'due', 'NX', ms + 1000, 'l:' .. name)
  limit_advance(P, name, ms)
end

-- limit_leave takes a unit out of the line that it stands in, or was called from, and lets the next one have the call.
local function limit_leave(P, task, eunit, ms, keep)
  local stands = redis.call('HGET', task, field(eunit, 'line'))
  if not stands then return end
  redis.call('HDEL', task, field(eunit, 'line'))
  local name, member = string.match(stands, ' (.*)$'), string.sub(task, #P + 6) .. ':' .. eunit
  redis.call('ZREM', P .. 'line:' .. name, member)
  redis.call('ZREM', P .. 'called:' .. name, member)
  limit_advance(P, name, ms, keep)
end

-- limit_give_back is called by every script that ends the running of a unit of a task with `ties`, once its new state is
-- written: its slots are free, and the next ones in the lines are called.
local function limit_give_back(P, task, eunit, ms, keep)
  local f = field(eunit, 'slots')
  local held = get(task, f)
  if not held then return end
  redis.call('HDEL', task, f)
  redis.call('HDEL', task .. ':long', f)
  local member = string.sub(task, #P + 6) .. ':' .. eunit
  for i, name in ipairs(unpack_fields(held)) do
    if i > 1 and redis.call('SREM', P .. 'limit:' .. name, member) == 1 then limit_advance(P, name, ms, keep) end
  end
end
