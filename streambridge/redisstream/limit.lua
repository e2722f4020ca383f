-- The look at a limit in whose line somebody waits, once a second. Stands before tick.lua.

-- limit_check heals slots and calls who has room. A slot is its unit's until that ends running; only where nobody is left to
-- end it, it is taken back: the record is gone or says otherwise, or the owner is gone and its entry pending with nobody.
-- Some of many each time: that takes longer to find the one, not longer here.
local function limit_check(P, name, group, stream, ms, keep, is_live)
  for _, member in ipairs(redis.call('SRANDMEMBER', P .. 'limit:' .. name, 20)) do
    local eid, eunit = string.match(member, '^([^:]*):(.*)$')
    local task = P .. 'task:' .. eid
    local had = redis.call('HMGET', task, field(eunit, 'state'), field(eunit, 'run'))
    local held = had[1] == 'RUNNING' and unpack_fields(get(task, field(eunit, 'slots')) or '') or {}
    local there = false
    for i = 2, #held do there = there or held[i] == name end
    if there and not is_live(incarnation(had[2])) then
      local key = string.sub(held[1], 1, 1) == 'i' and P .. 'inbox' or stream
      if not pending(key, group, string.sub(held[1], 2)) then
        there = false
        redis.call('HDEL', task, field(eunit, 'slots'))
        redis.call('HDEL', task .. ':long', field(eunit, 'slots'))
        note(task, ms, 'slot_lost', 'its node is gone, and its entry is nobody\'s')
      end
    end
    if not there then redis.call('SREM', P .. 'limit:' .. name, member) end
  end
  limit_advance(P, name, ms, keep)
end
