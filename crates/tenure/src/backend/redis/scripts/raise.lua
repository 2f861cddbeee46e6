-- The holder's range of fences starts at this one, unless it starts higher already: what other servers reserved for the same lease.
--
-- ARGV  2: token · 3: the fence
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
