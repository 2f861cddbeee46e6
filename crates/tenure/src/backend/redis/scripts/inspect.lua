-- Looks, and changes nothing.
--
-- KEYS  1: lock · 2: fence · 3: queue · 4: beats
-- Returns the server's time (µs), then  seen, holder or nil, its fence, ms left, the waiters that are alive

local RANGE, LAPSE = 64, 1500000

local last = tonumber(call('GET', KEYS[2]) or 0)
local waiters = {}
for _, token in ipairs(call('ZRANGE', KEYS[3], 0, -1)) do
  local beat = string.match(call('HGET', KEYS[4], token) or '0', '%d+') or 0
  if now - beat <= LAPSE then table.insert(waiters, token) end
end
return { now, 'seen', call('GET', KEYS[1]), math.max(last - RANGE + 1, 0), call('PTTL', KEYS[1]), waiters }
