-- Lets the last fence live for at least this long, and never for less than before. It is always a write, also where nothing changes, so
-- that replicas can be waited for behind it.
--
-- KEYS  1: fence
-- ARGV  1: ms
-- Returns 1, or 0 where there is none

return redis.call('PEXPIRE', KEYS[1], math.max(redis.call('PTTL', KEYS[1]), ARGV[1]))
