-- Keeps the last fence for at least this long. It always writes, so that a client can wait for replicas behind it.
--
-- KEYS     1: fence
-- ARGV     1: ms
-- Returns  1, or 0 if there is no fence

local fence, least = KEYS[1], ARGV[1]

return redis.call('PEXPIRE', fence, math.max(redis.call('PTTL', fence), least))
