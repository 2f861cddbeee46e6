-- Leaves the queue. If the waiter was granted the name meanwhile, releases it; all fences of its range stay reserved, because it may have used them.
--
-- KEYS     as in record.lua
-- ARGV     2: token · 3: memory, see record.lua
-- Returns  done

local token = ARGV[2]

release(token, math.huge)
return { now, 'done', unpublished }
