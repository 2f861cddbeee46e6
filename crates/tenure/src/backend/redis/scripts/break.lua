-- Ends the lease that was inspected. What it used of its range is not known: all of it stays reserved.
--
-- ARGV  2: the token that held it · 3: the fence that started its range
-- Returns  done · not_held, holder or nil

local holder, last = call('GET', LOCK), last_fence()
if holder ~= ARGV[2] or start_of(last) ~= tonumber(ARGV[3]) then
  return { now, 'not_held', holder or settle(), unpublished }
end
vacate(last)
remember_broken(last)
return { now, 'done', unpublished }
