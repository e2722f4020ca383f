-- What a unit has spawned, and what its joins wait for. Stands behind task.lua and before wait.lua.
-- eid, eunit and ename are the escaped names of a task, a unit and a spawn or a join; f is "<eunit>:<ename>".

-- chunks calls do_with(from, to) for the numbers 1 to n, no more of them at once than a command takes from a script.
local function chunks(n, do_with)
  for from = 1, n, 1000 do do_with(from, math.min(from + 999, n)) end
end

-- child_step is the checkpoint of a child that has ended, as its parent has it; u is the prefix of the child's fields.
local function child_step(child, u, began, ms)
  local failure, ctype, result = '', '', ''
  local state = redis.call('HGET', child, u .. 'state')
  if state == 'SUCCEEDED' then
    ctype, result = get(child, u .. 'ctype') or '', get(child, u .. 'result') or ''
  else
    local reason, why = redis.call('HGET', child, u .. 'reason'), get(child, u .. 'error') or ''
    failure = string.sub(state .. ' ' .. (reason and string.lower(reason) .. ': ' or '') .. why, 1, 4096)
  end
  return string.format('child 1 %s %d %d %d ', began, ms, #failure, #result) .. ctype .. '\n' .. failure .. result, failure == ''
end

-- spawn starts a child of a unit; packed is {escaped name, escaped id, escaped unit, work, type, the packed entry}. One whose
-- name has a checkpoint was started before. A unit of that identity that is there already becomes the child where it is the
-- same work and nobody else's child; else the child has FAILED at once. It says whether there was anything to start.
local function spawn(P, task, eunit, packed, ms)
  local ename, eid, ceunit, work, kind, entry = unpack(unpack_fields(packed))
  local f, step = eunit .. ':' .. ename, field(eunit, 'step:' .. ename)
  if redis.call('HEXISTS', task, step) == 1 or redis.call('HEXISTS', task .. ':long', step) == 1 then return false end
  local child, member, u = P .. 'task:' .. eid, eid .. ':' .. ceunit, field(ceunit, '')
  local me = string.sub(task, #P + 6) .. ':' .. f
  local had = redis.pcall('HMGET', child, u .. 'state', u .. 'work', 'fence')
  local failure
  if had.err then
    failure = 'FAILED bad_state: the key ' .. child .. ' is no record of Weir'
  elseif had[1] then
    local parent = get(child, u .. 'parent')
    if had[2] and had[2] ~= work then
      failure = 'FAILED id_conflict: its id is taken by other work'
    elseif parent and parent ~= me then
      failure = 'FAILED id_conflict: it is a child of task ' .. unescape(string.match(parent, '^[^:]*')) .. ' already'
    end
  else
    local mark = redis.call('HGET', string.match(P, '^(.*:)[^:]*:$') .. 'submitted:' .. eid, ceunit)
    if mark and string.match(mark, '^%S+ (%S*)') ~= work then failure = 'FAILED id_conflict: its id is taken by other work' end
  end
  local id, value, state = unescape(eid), nil, '-'
  if failure then
    value = string.format('child 1 %d %d %d 0 \n', ms, ms, #failure) .. failure
  elseif final[had[1]] then
    local good
    value, good = child_step(child, u, string.format('%d', ms), ms)
    if good then state = '+' end
  else
    if had[1] then
      redis.call('HSET', child, 'ties', '1')
      put(child, u .. 'parent', me)
    else
      if had[3] then opened(child) end
      local set = {child, 'ties', '1', 'fence', had[3] or '0', u .. 'state', 'PENDING', u .. 'work', work, u .. 'created', ms, u .. 'updated', ms}
      for name, v in pairs({type = kind, parent = me}) do
        if #v > 64 then put(child, u .. name, v) else set[#set + 1], set[#set + 2] = u .. name, v end
      end
      redis.call('HSET', unpack(set))
      to_inbox(P, with_control(unpack_fields(entry), id, '0-0', 0))
    end
    redis.call('PERSIST', child .. ':mail')
    value, state = string.format('spawned 1 %d 0 0 %d \n', ms, #id) .. id, member
  end
  put(task, step, value)
  redis.call('HSET', task .. ':children', f, state)
  return true
end

-- spawn_all starts what a commit spawns: packed is {a child for spawn, …}.
local function spawn_all(P, task, eunit, packed, ms)
  local n = 0
  for _, child in ipairs(unpack_fields(packed)) do
    if spawn(P, task, eunit, child, ms) then n = n + 1 end
  end
  if n == 0 then return end
  redis.call('HSET', task, 'ties', '1', field(eunit, 'steps'), '1')
  redis.call('PERSIST', task .. ':mail')
  note(task, ms, 'spawned', n .. (n == 1 and ' child' or ' children'))
end

-- drop_children forgets what a unit that has ended for good has spawned. It returns the members of those that are open.
local function drop_children(task, eunit)
  local head, kids = eunit .. ':', redis.call('HGETALL', task .. ':children')
  local fields, open = {}, {}
  for i = 1, #kids, 2 do
    if string.sub(kids[i], 1, #head) == head then
      fields[#fields + 1] = kids[i]
      if #kids[i + 1] > 1 then open[#open + 1] = kids[i + 1] end
    end
  end
  chunks(#fields, function(from, to) redis.call('HDEL', task .. ':children', unpack(fields, from, to)) end)
  return open
end

-- open_join makes the set of the children that a join waits for, and its rule: "<need> <keeps going, 0 or 1> <results>
-- <failures>". What the set no longer has, has ended.
local function open_join(task, eunit, f, w)
  local names, open, results, failures = {}, {}, 0, 0
  for i, ename in ipairs(w.children) do names[i] = eunit .. ':' .. ename end
  chunks(#names, function(from, to)
    for i, state in ipairs(redis.call('HMGET', task .. ':children', unpack(names, from, to))) do
      if state == '+' then
        results = results + 1
      elseif state == '-' then
        failures = failures + 1
      elseif state then
        open[#open + 1] = w.children[from + i - 1]
      end
    end
  end)
  chunks(#open, function(from, to) redis.call('SADD', task .. ':join:' .. f, unpack(open, from, to)) end)
  redis.call('HSET', task .. ':joins', f, string.format('%d %d %d %d', w.need or 0, w.keep_going and 1 or 0, results, failures))
end

-- close_join takes away what stood for a wait, if it was a join.
local function close_join(task, f)
  if redis.call('HDEL', task .. ':joins', f) == 1 then redis.call('DEL', task .. ':join:' .. f) end
end

-- joined says whether a join is over: none of its children is open, enough have a result, or one has none and that ends it.
local function joined(task, f, rule)
  local need, keeps, results, failures = string.match(rule, '^(%d+) (%d) (%d+) (%d+)$')
  need, results = tonumber(need), tonumber(results)
  return need > 0 and results >= need or keeps == '0' and failures ~= '0' or redis.call('EXISTS', task .. ':join:' .. f) == 0
end

-- join_over says how a join has ended, as `over` does.
local function join_over(task, f, w, ripe)
  local flat, timeout = {}, false
  if not joined(task, f, redis.call('HGET', task .. ':joins', f) or '0 1 0 0') then
    if not ripe then return nil end
    flat, timeout = {'timeout', '1'}, true
  end
  local left, open = redis.call('SMEMBERS', task .. ':join:' .. f), {}
  if #left == 0 then return flat, timeout end
  for _, ename in ipairs(left) do open[ename] = true end
  flat[#flat + 1], flat[#flat + 2] = 'some', '1'
  for _, ename in ipairs(w.children) do
    if not open[ename] then flat[#flat + 1], flat[#flat + 2] = 'child', unescape(ename) end
  end
  return flat, timeout
end

-- joins_of lists the fields of a unit's open joins, in an order that is the same on every server.
local function joins_of(task, eunit)
  local head, found = eunit .. ':', {}
  for _, f in ipairs(redis.call('HKEYS', task .. ':joins')) do
    if string.sub(f, 1, #head) == head then found[#found + 1] = f end
  end
  table.sort(found)
  return found
end

-- child_ended takes a child out of a join, and says whether that is over now.
local function child_ended(task, f, ename, good)
  if redis.call('SREM', task .. ':join:' .. f, ename) == 0 then return false end
  local rule = redis.call('HGET', task .. ':joins', f)
  local need, keeps, results, failures = string.match(rule, '^(%d+) (%d) (%d+) (%d+)$')
  rule = string.format('%s %s %d %d', need, keeps, results + (good and 1 or 0), failures + (good and 0 or 1))
  redis.call('HSET', task .. ':joins', f, rule)
  return joined(task, f, rule)
end
