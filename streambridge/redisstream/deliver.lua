-- Give a task the message that an entry brings, and acknowledge the entry.
-- KEYS[1] the stream of the entry
-- ARGV: P, group, consumer, keep ms, id, task id, name, message id or "", content type, payload, ms that it is kept for a
--   task that has waited for nothing, how many messages that nobody has read a task may have
-- Returns what became of it, as messages.Receipt: 0 when the entry is not pending with the consumer, then nothing was done.
-- Atomic because a message that is recorded and not acknowledged would come twice, and the other way round never; and
-- because it races with the end of the wait for it and with the parking of its unit. Repeated, the entry is not pending.
local key, P, group, me, keep, id = KEYS[1], ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5]
local row = pending(key, group, id, me)
if not row then return 0 end
local ms, task = now_ms(), P .. 'task:' .. escape(ARGV[6])

local function set_aside(reason, detail)
  letter(P, ms, keep, {reason = reason, detail = detail, stream = key, entry = id, deliveries = row[4], wake = 0,
    task_id = ARGV[6]}, body(key, id))
end

local what
for _, k in ipairs({task, task .. ':mail', task .. ':waits'}) do
  local kind = redis.call('TYPE', k).ok
  if kind ~= 'hash' and kind ~= 'none' then
    set_aside('BAD_STATE', 'the key ' .. k .. ' is a ' .. kind .. ' and no record of Weir')
    what = 6
    break
  end
end
if not what then
  what = send(P, task, escape(ARGV[7]), escape(ARGV[8]), ARGV[9], ARGV[10], tonumber(ARGV[11]), tonumber(ARGV[12]), ms, keep)[1]
  if what == 5 then set_aside('MAILBOX_FULL', ARGV[12] .. ' messages to the task wait and nothing has read them') end
end
settle_entry(P, key, group, id)
return what
