-- Read the group as operators see it.
-- KEYS[1] public stream  KEYS[2] inbox
-- ARGV: P, group
-- Returns {length, inbox length, lag or -1, pending, id of the oldest pending entry or "", now ms, dead letters, due,
--   states {name, count, …}, consumers {{name, incarnation, live, pending, idle ms, last tick ms or 0, stuck}, …},
--   types {{agent type, entries, id of the oldest one, 1 when a live node runs it}, …}, 1 when the public stream exists,
--   1 when the group exists on it, what waits to join the stream, gate (gate_read)}.
-- Atomic so that the numbers belong together. It writes nothing.
local stream, inbox, P, group = KEYS[1], KEYS[2], ARGV[1], ARGV[2]
local ms = now_ms()
local calm = tonumber(redis.call('HGET', P .. 'meta', 'calm_until') or 0) > ms

local lag, waiting, oldest, consumers, at, joined = 0, 0, '', {}, {}, 0
for _, key in ipairs({stream, inbox}) do
  local g = find(groups(key), group)
  if not g and key == stream then lag = redis.call('XLEN', key) end -- nobody has read anything
  if g then
    if key == stream then joined = 1 end
    if lag >= 0 and type(g.lag) == 'number' then lag = lag + g.lag elseif not g.lag then lag = -1 end
    waiting = waiting + g.pending
    if g.pending > 0 then
      local first = redis.call('XPENDING', key, group)[2]
      if oldest == '' or before(first, oldest) then oldest = first end
    end
    for _, row in ipairs(redis.call('XINFO', 'CONSUMERS', key, group)) do
      local c = dict(row)
      local seen = at[c.name]
      if not seen then
        local inc = redis.call('HGET', P .. 'consumer:' .. escape(c.name), 'inc') or ''
        local live = inc ~= '' and (calm or redis.call('EXISTS', P .. 'node:' .. inc) == 1)
        local life = inc ~= '' and redis.call('HMGET', P .. 'life:' .. inc, 'tick', 'stuck') or {}
        seen = {c.name, inc, live and 1 or 0, 0, c.idle, tonumber(life[1] or 0), live and tonumber(life[2] or 0) or 0}
        at[c.name] = seen
        consumers[#consumers + 1] = seen
      end
      seen[4] = seen[4] + c.pending
      seen[5] = math.min(seen[5], c.idle)
    end
  end
end

local states, delayed = {}, redis.call('ZCARD', root(P) .. 'delayed')
local kinds = redis.call('SMEMBERS', P .. 'index:kinds')
for state in pairs(indexed) do
  local n = 0
  for _, k in ipairs(kinds) do n = n + redis.call('ZCARD', P .. 'index:' .. state .. ':' .. k) end
  if state == 'SCHEDULED' then n = n + delayed end
  states[#states + 1] = state
  states[#states + 1] = n
end
states[#states + 1] = 'SUCCEEDED'
states[#states + 1] = tonumber(redis.call('HGET', P .. 'counts', 'succeeded') or 0)

local rows, theirs = {}, {}
local types = redis.call('SMEMBERS', P .. 'types')
if #types > 0 then
  -- By the nodes, not by the consumers: a node has none in a group that was just made again.
  for _, inc in ipairs(redis.call('ZRANGE', P .. 'nodes', 0, -1)) do
    if calm or redis.call('EXISTS', P .. 'node:' .. inc) == 1 then
      for _, t in ipairs(unpack_fields(redis.call('HGET', P .. 'life:' .. inc, 'types') or '')) do theirs[t] = true end
    end
  end
  for _, t in ipairs(types) do
    local key = P .. 'type:' .. escape(t)
    local first = redis.call('XRANGE', key, '-', '+', 'COUNT', 1)
    -- The tick forgets the type of an empty one.
    if first[1] then rows[#rows + 1] = {t, redis.call('XLEN', key), first[1][1], theirs[t] and 1 or 0} end
  end
end
return {redis.call('XLEN', stream), redis.call('XLEN', inbox), lag, waiting, oldest, ms, redis.call('XLEN', P .. 'dead'),
  redis.call('ZCARD', P .. 'due'), states, consumers, rows,
  redis.call('EXISTS', stream), joined, delayed, gate_read(P, ms)}
