-- Replaces the token of a lease, under a new fence. A repeated adopt extends the lease.
--
-- KEYS     as in record.lua
-- ARGV     2: the token that holds it · 3: the new token · 4: ttl (ms) · 5: the highest fence that the client has seen
--          6: the server refuses the request after this time (µs) · 7: memory, see record.lua
-- Returns  granted, fence · not_held, holder or nil · late · ahead, by how many µs the client's highest fence is too high

local from, token, ttl = ARGV[2], ARGV[3], tonumber(ARGV[4])
local floor, not_after = tonumber(ARGV[5]), tonumber(ARGV[6])

if now > not_after then return { now, 'late' } end
local excess = excess_of(floor)
if excess then return { now, 'ahead', excess } end
local holder = call('GET', LOCK)
if holder == token then return extend(ttl, floor) end
if holder ~= from then return { now, 'not_held', holder or settle(), unpublished } end
dequeue(token)
return grant(token, ttl, floor)
