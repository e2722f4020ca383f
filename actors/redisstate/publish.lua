-- publish.lua: append a chunk that followers of a task see.
--
-- KEYS[1]  the task's stream of chunks
-- ARGV[1]  most chunks to keep (about)
-- ARGV[2]  ms that they are kept after the last
-- ARGV[3…] fields and values in turn
--
-- Returns the chunk's id.
--
-- Atomic so that a stream of chunks never stands there without a time to live. Not fenced: what is published is for
-- eyes, the attempt in it tells them that the text starts again. Repeated after a lost reply it shows the chunk twice.
local id = redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[1], '*', unpack(ARGV, 3))
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return id
