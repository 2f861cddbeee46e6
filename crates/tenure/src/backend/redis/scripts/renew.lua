-- Makes a lease last at least this long from now. It stands alone, with one key and a read at its end: a script's keys are tracked
-- by what it reads after its last write, and the queue must not be tracked, or waiters would be woken for each other.
--
-- KEYS  1: lock
-- ARGV  1: token · 2: ttl (ms)
-- Returns the server's time (µs), then  done · not_held, holder or nil

local lock, token, ttl = KEYS[1], ARGV[1], tonumber(ARGV[2])

if call('GET', lock) == token and call('PTTL', lock) < ttl then call('PEXPIRE', lock, ttl) end
local holder = call('GET', lock)
if holder == token then return { now, 'done' } end
return { now, 'not_held', holder }
