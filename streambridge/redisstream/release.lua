-- Give back a part of a consumer's pending list, or what its tasks say of us.
-- KEYS[1] public stream  KEYS[2] inbox
-- ARGV: P, group, consumer, incarnation, keep ms, what, and for
--   "tasks":   names "<escaped task id>:<escaped unit>"
--   "entries": the stream (1 or 2), the id to start from
--   "leave":   nothing
-- Returns for "tasks" 0; for "entries" {given back, the id to go on from, or ""}; for "leave" 1.
-- In parts because a pending list of 100,000 in one script would stop the server. Each part is atomic: between a look
-- and a claim the entry could pass to another. A part that is repeated finds its work done: the unit is PENDING, the
-- entry has been idle for the hour that only a release writes, so the delivery count goes back once.
local P, group, me, inc, keep, what = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5]), ARGV[6]
local ms = now_ms()
local hour = 3600000

if what == 'tasks' then
  for i = 7, #ARGV do
    local eid, eunit = string.match(ARGV[i], '^([^:]*):(.*)$')
    local task = P .. 'task:' .. eid
    local had = redis.call('HMGET', task, field(eunit, 'state'), field(eunit, 'run'), 'owner', 'queued', 'ties')
    if had[1] == 'RUNNING' and string.match(had[2] or '', '^[^:]*') == inc then
      redis.call('HSET', task, field(eunit, 'state'), 'PENDING', field(eunit, 'updated'), ms)
      redis.call('HINCRBY', task, field(eunit, 'interruptions'), 1)
      if had[5] then limit_give_back(P, task, eunit, ms, keep) end
    end
    if had[3] == inc then disown(P, task, had[4] or '0') end
  end
  return 0
end

if usurped(P, me, inc) then return what == 'leave' and 1 or {0, ''} end

if what == 'entries' then
  local key = KEYS[tonumber(ARGV[7])]
  local rows = redis.pcall('XPENDING', key, group, ARGV[8], '+', 200, me)
  if rows.err or #rows == 0 then return {0, ''} end
  local has = bodies(key, rows[1][1])
  local by_count, given = {}, 0
  for _, row in ipairs(rows) do
    local id, idle, count = row[1], row[3], row[4]
    if idle < hour - 60000 then
      if has(id) then
        local back = math.max(count - 1, 0)
        by_count[back] = by_count[back] or {'XCLAIM', key, group, me, 0}
        table.insert(by_count[back], id)
      else
        gone(P, key, group, id, count, nil, ms, keep)
      end
      given = given + 1
    end
  end
  for back, claim in pairs(by_count) do
    for _, word in ipairs({'IDLE', hour, 'RETRYCOUNT', back, 'JUSTID'}) do claim[#claim + 1] = word end
    redis.call(unpack(claim))
  end
  return {given, '(' .. rows[#rows][1]}
end

redis.call('DEL', P .. 'node:' .. inc)
redis.call('ZREM', P .. 'nodes', inc)
redis.call('HDEL', P .. 'life:' .. inc, 'trial', 'trial_until')
local rest = 0
for i = 1, 2 do
  local rows = redis.pcall('XPENDING', KEYS[i], group, '-', '+', 1, me)
  if not rows.err then rest = rest + #rows end
end
local name = P .. 'consumer:' .. escape(me)
if rest == 0 then
  redis.pcall('XGROUP', 'DELCONSUMER', KEYS[1], group, me)
  redis.pcall('XGROUP', 'DELCONSUMER', KEYS[2], group, me)
  redis.call('DEL', name)
else
  -- Left in order: others may take what it gave back even while a calm counts everybody as alive.
  redis.call('HDEL', name, 'inc', 'client')
  redis.call('HSET', name, 'left', ms)
  redis.call('PEXPIRE', name, week)
end
return 1
