-- batch.lua: run a script once for each call of a batch.
--
-- KEYS[…]   the keys of the calls in turn, of each as many
-- ARGV[1]   number of calls
-- ARGV[2…]  for each call the number of its arguments, and these
--
-- Returns {replies in turn, {number of a call that met an error, the error, …}}. An error touches no other call; but where
-- no call at all can write, on a replica, it is the whole reply: the client then leaves the connection and looks for the
-- master. (Errors are text here: go-redis loses its place in a list that holds one of the kinds it knows, such as OOM.)
--
-- One run for many because the server needs more than a microsecond to take up a script and another one to read the clock.
-- The calls are as independent as in runs of their own: the script stands below as a function and sees the KEYS and ARGV
-- of its call.

-- stamp is the time of the run, in ms as the hashes hold it.
local time
local function stamp()
	if not time then
		local t = redis.call('TIME')
		time = t[1] .. string.sub('00000' .. t[2], -6, -4)
	end
	return time
end

local function call(KEYS, ARGV)
-- include the script
end

local keys = #KEYS / ARGV[1] -- of each call

-- keys_of are the keys of a call: more, in a commit that emits thousands, than Lua takes apart at once.
local function keys_of(from)
	if keys <= 1000 then return {unpack(KEYS, from, from + keys - 1)} end
	local out = {}
	for i = 1, keys do out[i] = KEYS[from + i - 1] end
	return out
end

-- Within pcall: a call with more arguments than Lua takes apart fails alone, too.
local function run(key, arg, args) return call(keys_of(key), {unpack(ARGV, arg, arg + args - 1)}) end

-- Before Redis 7.0 what redis.call raises is text, and what Lua itself raises always is.
local function raised(err)
	if type(err) == 'table' then return err end
	return {err = string.find(err, '^%u+ ') and err or 'ERR ' .. err}
end

local replies, errors, key, arg = {}, {}, 1, 2
for i = 1, tonumber(ARGV[1]) do
	local args = tonumber(ARGV[arg])
	local ok, reply = pcall(run, key, arg + 1, args)
	if not ok then reply = raised(reply) end
	if type(reply) == 'table' and reply.err then
		if string.find(reply.err, '^READONLY') then return reply end
		errors[#errors + 1], errors[#errors + 2] = i, reply.err
		reply = nil
	end
	replies[i] = reply or false -- a nil would end the list
	key, arg = key + keys, arg + 1 + args
end
return {replies, errors}
