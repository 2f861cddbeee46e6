-- Ends the present lease and takes the name, ahead of the queue.
--
-- KEYS     as in record.lua
-- ARGV     2: token · 3: ttl (ms) · 4: the highest fence that the client has seen · 5: the server refuses the request after this time (µs)
--          6: memory, see record.lua
-- Returns  granted, fence · late · ahead, by how many µs the client's highest fence is too high

local token, ttl = ARGV[2], tonumber(ARGV[3])
local floor, not_after = tonumber(ARGV[4]), tonumber(ARGV[5])

if now > not_after then return { now, 'late' } end
local excess = excess_of(floor)
if excess then return { now, 'ahead', excess } end
local holder, last = call('GET', LOCK), last_fence()
if holder == token then return extend(ttl, floor) end
dequeue(token)
local granted = grant(token, ttl, floor)
if holder and not granted.err then remember_broken(last) end
return granted
