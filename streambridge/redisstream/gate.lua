-- The gate between Submit and the stream. Stands after stream.lua, in the scripts that look at it.
--
-- …:gate is a hash while the gate is not open: state (warned or shut), what, value and limit of what is over its limit or
-- near it, since (ms), first (the value then), hint (ms after which a client should come back). It expires ten seconds
-- after the last look: nodes that are gone leave no gate shut.

-- gate_read returns {"open"}, or {state, what, value, limit, for how many ms, hint}.
local function gate_read(P, ms)
  local g = redis.call('HMGET', P .. 'gate', 'state', 'what', 'value', 'limit', 'since', 'hint')
  if not g[1] then return {'open'} end
  g[5] = string.format('%.0f', math.max(0, ms - g[5]))
  return g
end

-- gate_memory is the used share of the server's maxmemory, or nil where it has none or does not tell. Asked within the
-- script it is that of the stream's own shard, and takes some microseconds.
local function gate_memory()
  local info = redis.pcall('INFO', 'memory')
  local used = type(info) == 'string' and tonumber(string.match(info, 'used_memory:(%d+)') or nil)
  local most = used and tonumber(string.match(info, 'maxmemory:(%d+)') or nil)
  return most and most > 0 and used / most or nil
end

-- gate_measure returns the measure that is worst off: {what, value, limit}, or nil where nothing has a limit.
-- limits are of age, pending, lag, length and memory; 0 for none.
local function gate_measure(P, stream, inbox, group, ms, limits)
  local worst
  local function measure(what, value, limit)
    if limit > 0 and value and (not worst or value / limit > worst[2] / worst[3]) then worst = {what, value, limit} end
  end
  local waiting, lag, oldest = 0, 0, nil
  for _, key in ipairs({stream, inbox}) do
    local g = find(groups(key), group)
    if g then
      waiting = waiting + g.pending
      if lag then lag = type(g.lag) == 'number' and lag + g.lag or nil end
      if limits[1] > 0 then
        local first
        if g.pending > 0 then
          first = redis.call('XPENDING', key, group)[2]
        else
          local new = redis.call('XRANGE', key, '(' .. g['last-delivered-id'], '+', 'COUNT', 1)
          first = new[1] and new[1][1]
        end
        -- A producer may number its entries from 1: such an id is no time.
        local at = first and tonumber(string.match(first, '^%d+')) or 0
        if at > 1e12 and (not oldest or at < oldest) then oldest = at end
      end
    end
  end
  measure('age', oldest and ms - oldest, limits[1])
  measure('pending', waiting, limits[2])
  measure('lag', lag, limits[3])
  measure('length', redis.call('XLEN', stream), limits[4])
  if limits[5] > 0 then measure('memory', gate_memory(), limits[5]) end
  return worst
end

-- gate_hint guesses in how many ms the value will be low enough, from how fast it has shrunk since the gate was shut.
local function gate_hint(value, limit, first, passed)
  local speed = passed > 0 and (first - value) / passed or 0
  if speed > 0 then return math.min(math.max((value - 0.9 * limit) / speed, 1000), 60000) end
  return passed < 10000 and 5000 or 30000
end

-- gate_look shuts the gate, warns or opens it, once a second for the whole group, and returns what gate_read does.
local function gate_look(P, stream, inbox, group, ms, limits)
  local key, meta, some = P .. 'gate', P .. 'meta', false
  for _, limit in ipairs(limits) do some = some or limit > 0 end
  if not some or math.abs(ms - tonumber(redis.call('HGET', meta, 'gate_at') or 0)) < 900 then return gate_read(P, ms) end
  redis.call('HSET', meta, 'gate_at', ms)
  local worst = gate_measure(P, stream, inbox, group, ms, limits)
  local load = worst and worst[2] / worst[3] or 0
  local was = redis.call('HMGET', key, 'state', 'since', 'what', 'first')
  local state = load >= 1 and 'shut' or load >= 0.9 and (was[1] or 'warned')
  if not state then
    redis.call('DEL', key)
    return gate_read(P, ms)
  end
  local since, first = ms, worst[2]
  if was[1] == state then
    since = tonumber(was[2])
    if was[3] == worst[1] then first = tonumber(was[4]) end
  end
  local hint = state == 'shut' and gate_hint(worst[2], worst[3], first, ms - since) or 0
  redis.call('HSET', key, 'state', state, 'what', worst[1], 'value', worst[2], 'limit', worst[3], 'since', since,
    'first', first, 'hint', string.format('%.0f', hint))
  redis.call('PEXPIRE', key, 10000)
  return gate_read(P, ms)
end
