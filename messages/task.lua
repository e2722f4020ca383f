-- What the scripts of both Redis adapters share: the task hash's layout (layout.go) in code.
-- Stands before a script's own text; every function here runs inside that script, so it is as atomic as the script.
-- P is the group's key prefix. Times are milliseconds by Redis TIME.

local function now_ms()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end

-- A part of a key, as messages.Escape makes it.
local function escape(s)
  return (string.gsub(s, '[%%:{}]', {['%'] = '%25', [':'] = '%3A', ['{'] = '%7B', ['}'] = '%7D'}))
end

local function unescape(s)
  return (string.gsub(s, '%%(%x%x)', {['25'] = '%', ['3A'] = ':', ['7B'] = '{', ['7D'] = '}'}))
end

-- field is the name of a unit's field in the task hash; eunit is the escaped unit.
local function field(eunit, name)
  if eunit == '' then return name end
  return eunit .. '/' .. name
end

-- incarnation is the node of a unit's `run`.
local function incarnation(run) return string.match(run or '', '^[^:]*') end

-- pack writes a flat list {name, value, …} as netstrings; unpack_fields undoes it.
local function pack_fields(flat)
  local out = {}
  for i = 1, #flat do out[i] = #flat[i] .. ':' .. flat[i] .. ',' end
  return table.concat(out)
end

local function unpack_fields(packed)
  local out, at, n = {}, 1, 0
  while at <= #packed do
    local colon = string.find(packed, ':', at, true)
    local size = tonumber(string.sub(packed, at, colon - 1))
    n = n + 1
    out[n] = string.sub(packed, colon + 1, colon + size)
    at = colon + size + 2
  end
  return out
end

-- get reads one field of a unit (name includes the unit's prefix), wherever its length put it.
local function get(task, name)
  return redis.call('HGET', task, name) or redis.call('HGET', task .. ':long', name)
end

-- put writes one field of a unit: short ones into the small hash, long ones beside it.
local function put(task, name, value)
  if #value > 64 then
    redis.call('HDEL', task, name)
    redis.call('HSET', task .. ':long', name, value)
    redis.call('HSET', task, 'beside', '1')
  else
    redis.call('HSET', task, name, value)
  end
end

-- note appends to the timeline what leaves the straight path; the newest 200 lines are kept.
local function note(task, ms, what, detail)
  redis.call('RPUSH', task .. ':log', string.format('%d %s %s', ms, what, detail or ''))
  redis.call('LTRIM', task .. ':log', -200, -1)
  redis.call('HSET', task, 'beside', '1')
end

local final = {SUCCEEDED = true, FAILED = true, CANCELLED = true}

-- expire gives the task and all that stands beside it one time to live. ttl <= 0 keeps it (a task that has not ended).
-- `…:live` has a time to live of its own.
local function expire(task, ttl)
  for _, k in ipairs({task, task .. ':long', task .. ':body', task .. ':waiting', task .. ':log', task .. ':mail'}) do
    if ttl > 0 then redis.call('PEXPIRE', k, ttl) else redis.call('PERSIST', k) end
  end
end

-- closed counts the end of a unit that was not final before; the task expires when none of its units is open any more
-- and no entry waits with it: such an entry was acknowledged and stands nowhere else.
-- A script that ends a unit calls it instead of expire.
local function closed(task, ttl)
  local open = tonumber(redis.call('HGET', task, 'open') or 1) - 1
  if open > 0 then
    redis.call('HSET', task, 'open', open)
    return
  end
  if ttl > 0 and tonumber(redis.call('HGET', task, 'queued') or 0) > 0 then
    redis.call('HSET', task, 'open', 0, 'keep', ttl) -- disown lets it expire when nothing waits any more
    return
  end
  -- Kept for ever, the count must say that nothing is open; with a time to live its presence says so.
  if ttl > 0 then redis.call('HDEL', task, 'open') else redis.call('HSET', task, 'open', 0) end
  expire(task, ttl)
end

-- opened counts the begin of a unit that is new, or that had ended, in a task that has a record already.
local function opened(task)
  if redis.call('PTTL', task) >= 0 then
    expire(task, 0)
    redis.call('HDEL', task, 'open')
    -- Its mail has lost its time to live; the end that is to give it one must look for it.
    if redis.call('EXISTS', task .. ':mail') == 1 then redis.call('HSET', task, 'ties', '1') end
  else
    redis.call('HSET', task, 'open', tonumber(redis.call('HGET', task, 'open') or 1) + 1)
  end
end

-- to_inbox adds an entry that Weir itself makes; flat holds the fields with their control fields.
local function to_inbox(P, flat) return redis.call('XADD', P .. 'inbox', '*', unpack(flat)) end

-- control reads a control field of an entry that Weir made.
local function control(flat, name)
  for i = 1, #flat, 2 do
    if flat[i] == name then return flat[i + 1] end
  end
end

-- with_control returns the entry's fields with the control fields of an inbox entry in front; old ones are replaced.
local function with_control(flat, id, origin, wake)
  local out = {'weir.id', id, 'weir.origin', origin, 'weir.wake', tostring(wake or 0)}
  for i = 1, #flat, 2 do
    if string.sub(flat[i], 1, 5) ~= 'weir.' then
      out[#out + 1] = flat[i]
      out[#out + 1] = flat[i + 1]
    end
  end
  return out
end

-- disown ends ownership of a task and moves the oldest entry that waited for it to the inbox.
-- `queued` is what the caller has read of that field, or nil to have it read here.
local function disown(P, task, queued)
  local function none_waits()
    local left = redis.call('HMGET', task, 'open', 'keep')
    redis.call('HDEL', task, 'queued', 'keep')
    if left[2] and left[1] == '0' then
      redis.call('HDEL', task, 'open')
      expire(task, tonumber(left[2]))
    end
  end
  redis.call('HDEL', task, 'owner')
  queued = queued or redis.call('HGET', task, 'queued')
  if not queued or tonumber(queued) <= 0 then return end
  local packed = redis.call('LPOP', task .. ':waiting')
  if not packed then return none_waits() end
  if redis.call('HINCRBY', task, 'queued', -1) <= 0 then none_waits() end
  to_inbox(P, unpack_fields(packed))
end

-- index moves a unit between the sets by state; nil for a state that is not indexed.
-- member is "<escaped id>:<escaped unit>", kind the escaped agent type.
local indexed = {FAILED = true, WAITING = true, RETRYING = true, SCHEDULED = true, CANCELLED = true}
local function index(P, kind, member, from, to, ms)
  if from and indexed[from] then redis.call('ZREM', P .. 'index:' .. from .. ':' .. kind, member) end
  if to and indexed[to] then
    redis.call('ZADD', P .. 'index:' .. to .. ':' .. kind, ms, member)
    redis.call('SADD', P .. 'index:kinds', kind)
  end
end

-- index_ended is index for a final state, kept for `keep` ms, 0 for ever: members whose records have expired are forgotten.
-- Records of one state may be kept for different times, so the longest of them counts.
local function index_ended(P, kind, member, from, to, ms, keep)
  index(P, kind, member, from, nil, ms)
  local key = P .. 'index:' .. to .. ':' .. kind
  redis.call('ZADD', key, ms, member)
  redis.call('SADD', P .. 'index:kinds', kind)
  local longest = tonumber(redis.call('HGET', P .. 'meta', 'keep:' .. to) or -1)
  if longest ~= 0 and (keep <= 0 or keep > longest) then
    longest = math.max(keep, 0)
    redis.call('HSET', P .. 'meta', 'keep:' .. to, string.format('%d', longest))
  end
  if longest == 0 then
    redis.call('PERSIST', key)
  else
    redis.call('ZREMRANGEBYSCORE', key, '-inf', '(' .. string.format('%d', ms - longest))
    redis.call('PEXPIRE', key, string.format('%d', longest))
  end
end

-- end_trial takes a unit off the trial of the node that ran it; run is the unit's field, or nil.
local function end_trial(P, run, member)
  local life = run and P .. 'life:' .. incarnation(run)
  if life and redis.call('HGET', life, 'trial') == member then redis.call('HDEL', life, 'trial', 'trial_until') end
end

-- letter writes a dead letter: header fields (ends: 1 where the unit has FAILED with it, and is its to bring back), then the entry's own fields packed to the byte. keep is its time to live
-- in ms: older letters are trimmed, and the key goes when nothing is added for that long.
local function letter(P, ms, keep, head, flat)
  local args = {P .. 'dead', 'MINID', '~', tostring(math.max(ms - keep, 0)), '*'}
  for _, name in ipairs({'reason', 'detail', 'stream', 'entry', 'deliveries', 'wake', 'task_id', 'unit', 'type', 'ends'}) do
    args[#args + 1] = name
    args[#args + 1] = tostring(head[name] or '')
  end
  args[#args + 1] = 'fields'
  args[#args + 1] = flat and pack_fields(flat) or ''
  local id = redis.call('XADD', unpack(args))
  redis.call('PEXPIRE', P .. 'dead', keep)
  redis.call('HINCRBY', P .. 'counts', 'dead', 1)
  return id
end

-- body returns an entry's flat fields from its stream, or nil when somebody trimmed or deleted it.
local function body(stream, id)
  local found = redis.call('XRANGE', stream, id, id)
  return found[1] and found[1][2]
end

-- saved returns the copy of a unit's entry that a heartbeat or a park made, or nil.
local function saved(task, unit)
  local packed = redis.call('HGET', task .. ':body', unit)
  return packed and unpack_fields(packed)
end
