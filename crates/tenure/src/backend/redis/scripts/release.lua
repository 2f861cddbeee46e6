-- Releases a lease.
--
-- KEYS     as in record.lua
-- ARGV     2: token · 3: the last fence that was used · 4: memory, see record.lua
-- Returns  done · not_held, holder or nil

local token, used = ARGV[2], tonumber(ARGV[3])

local was_held, holder = release(token, used)
if was_held then return { now, 'done', unpublished } end
return { now, 'not_held', holder, unpublished }
