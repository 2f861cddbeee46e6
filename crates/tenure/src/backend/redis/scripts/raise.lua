-- Makes the holder's range of fences start at this fence, unless it starts higher: other servers reserved these fences for the same lease.
--
-- KEYS     as in record.lua
-- ARGV     2: token · 3: the fence · 4: memory, see record.lua
-- Returns  granted, fence · not_held, holder or nil

local token, fence = ARGV[2], tonumber(ARGV[3])

local holder = call('GET', LOCK)
if holder ~= token then return { now, 'not_held', holder } end
local last = last_fence()
if last < fence + RANGE - 1 then
  last = fence + RANGE - 1
  set_last(last, call('PTTL', LOCK))
end
return { now, 'granted', start_of(last) }
