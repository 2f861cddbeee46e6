-- Ends the present lease and takes its place, ahead of the queue.
--
-- ARGV  2: token · 3: ttl (ms) · 4: the highest fence that the client has seen · 5: refused when executed later than this (µs)
-- Returns  granted, fence · late · ahead, by how many µs the floor is too high

local token, ttl = ARGV[2], tonumber(ARGV[3])
local floor, not_after = tonumber(ARGV[4]), tonumber(ARGV[5])

if now > not_after then return { now, 'late' } end
local ahead = ahead_by(floor)
if ahead then return { now, 'ahead', ahead } end
local holder, last = call('GET', LOCK), last_fence()
if holder == token then return extend(ttl, floor) end
dequeue(token)
local granted = grant(token, ttl, floor)
if holder and not granted.err then remember_broken(last) end
return granted
