-- Gives a lease back.
--
-- ARGV  2: token · 3: the last fence that was used
-- Returns  done · not_held, holder or nil

local was_held, holder = give_back(ARGV[2], tonumber(ARGV[3]))
if was_held then return { now, 'done', unpublished } end
return { now, 'not_held', holder, unpublished }
