-- End a dead letter: retry, complete or drop it.
-- KEYS[1] public stream
-- ARGV: P, letter id, how (retry, complete, drop)
-- Returns 1 when it is done, 0 when there is no such letter, 2 when a retry has no fields to retry with, 3 when the
--   unit is not FAILED (it runs, or ended otherwise) and the answer would contradict it, 4 when a retry has more fields
--   than an entry may have.
-- Atomic because the letter and the unit's state must agree. Repeated within a minute it answers 1 again.
local P, id, how = ARGV[1], ARGV[2], ARGV[3]
local told = P .. 'settled:' .. id
local found = redis.call('XRANGE', P .. 'dead', id, id)
if not found[1] then
  if redis.call('GET', told) == how then return 1 end
  return 0
end
local ms = now_ms()
local head = dict(found[1][2])
local eid, eunit = escape(head.task_id), escape(head.unit)
local task, name = P .. 'task:' .. eid, eid .. ':' .. eunit
local kept = redis.call('TYPE', task).ok -- a foreign key may have set it aside
-- Of a conflict, a message, or an entry that could not be decoded the record is other work's: such an entry comes back as its
-- producer had added it.
local has = head.ends == '1' and (kept == 'hash' or kept == 'none')
local state, kind = false, false
if has then
  local had = redis.call('HMGET', task, field(eunit, 'state'), field(eunit, 'type'))
  state, kind = had[1], had[2]
end

if how == 'retry' then
  local flat = unpack_fields(head.fields)
  if #flat == 0 then return 2 end
  if #flat > 2000 then return 4 end
  local wake = 0
  if state and state ~= 'FAILED' then return 3 end
  if state then
    -- A fresh ledger, a fence that whoever still runs it does not have, and the checkpoints of what was done.
    opened(task)
    redis.call('HINCRBY', task, 'fence', 1)
    wake = redis.call('HINCRBY', task, field(eunit, 'wake'), 1)
    for _, f in ipairs({'failures', 'crashes', 'timeouts', 'deaths', 'blamed', 'interruptions', 'waits', 'classes', 'ran', 'reason',
      'error', 'run', 'woken', 'resolved'}) do
      redis.call('HDEL', task, field(eunit, f))
      redis.call('HDEL', task .. ':long', field(eunit, f))
    end
    local steps = field(eunit, 'step:')
    for _, key in ipairs({task, task .. ':long'}) do
      for _, f in ipairs(redis.call('HKEYS', key)) do
        if string.sub(f, 1, #steps) == steps then
          local status = string.match(redis.call('HGET', key, f), '^%a*')
          if status == 'retrying' or status == 'spent' then redis.call('HDEL', key, f) end
        end
      end
    end
    redis.call('HSET', task, field(eunit, 'state'), 'PENDING', field(eunit, 'updated'), ms)
    index(P, escape(kind or head.type), name, 'FAILED', 'PENDING', ms)
    note(task, ms, 'retried', 'from the dead letters')
  end
  local origin = head.entry
  if head.stream ~= KEYS[1] then origin = control(flat, 'weir.origin') or '' end
  flat = with_control(flat, head.task_id, origin, wake)
  if head.task_id == '' then flat = {unpack(flat, 3)} end
  to_inbox(P, flat)
elseif how == 'complete' then
  if state and state ~= 'FAILED' and state ~= 'SUCCEEDED' then return 3 end
  if state == 'FAILED' then
    redis.call('HINCRBY', task, 'fence', 1)
    redis.call('HSET', task, field(eunit, 'state'), 'SUCCEEDED', field(eunit, 'updated'), ms)
    redis.call('HDEL', task, field(eunit, 'reason'), field(eunit, 'error'))
    redis.call('HDEL', task .. ':long', field(eunit, 'error'))
    index(P, escape(kind or head.type), name, 'FAILED', 'SUCCEEDED', ms)
    redis.call('HINCRBY', P .. 'counts', 'succeeded', 1)
    note(task, ms, 'completed', 'by hand, from the dead letters')
  end
end
redis.call('XDEL', P .. 'dead', id)
redis.call('SET', told, how, 'PX', 60000)
return 1
