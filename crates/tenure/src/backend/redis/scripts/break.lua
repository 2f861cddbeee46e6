-- Ends the lease that was inspected. Its holder may have used any fence of its range, so all of it stays reserved.
--
-- KEYS     as in record.lua
-- ARGV     2: the token that held it · 3: the fence that started its range · 4: memory, see record.lua
-- Returns  done · not_held, holder or nil

local token, fence = ARGV[2], tonumber(ARGV[3])

local holder, last = call('GET', LOCK), last_fence()
if holder ~= token or start_of(last) ~= fence then
  return { now, 'not_held', holder or settle(), unpublished }
end
hand_over(last)
remember_broken(last)
return { now, 'done', unpublished }
