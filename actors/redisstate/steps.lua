-- steps.lua: read the checkpoints of one unit, wherever their length put them.
--
-- KEYS[1]  the task's hash
-- ARGV[1]  what their fields start with: "step:" or "<escaped unit>/step:"
--
-- Returns {field, value, …} without the start.
--
-- Atomic because a checkpoint moves between the two hashes when its length changes: two reads could miss it in both.
-- In a script because the hash of a task with many units is much larger than one unit's part of it.
local start, out, seen = ARGV[1], {}, {}
for _, key in ipairs({KEYS[1], KEYS[1] .. ':long'}) do
	for _, field in ipairs(redis.call('HKEYS', key)) do
		if string.sub(field, 1, #start) == start and not seen[field] then
			seen[field] = true
			out[#out + 1] = string.sub(field, #start + 1)
			out[#out + 1] = redis.call('HGET', key, field)
		end
	end
end
return out
