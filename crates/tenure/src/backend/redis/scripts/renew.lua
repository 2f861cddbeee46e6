-- Makes a lease last at least this long from now. It stands alone, with one key that it reads last: the server tracks the keys that a
-- script reads after its last write. The queue must not be tracked, or the server would wake waiters for each other.
--
-- KEYS     1: lock
-- ARGV     1: token · 2: ttl (ms)
-- Returns  the server's time (µs), then  done · not_held, holder or nil

local lock, token, ttl = KEYS[1], ARGV[1], tonumber(ARGV[2])

if call('GET', lock) == token and call('PTTL', lock) < ttl then call('PEXPIRE', lock, ttl) end
local holder = call('GET', lock)
if holder == token then return { now, 'done' } end
return { now, 'not_held', holder }
