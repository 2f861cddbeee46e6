-- Looks, and changes nothing.
--
-- KEYS  1: lock · 2: fence · 3: queue · 4: beats · 5: broken
-- Returns the server's time (µs), then  seen, holder or nil, its fence, ms left, the waiters that are alive, each with its place (µs),
--          the fence of the lease that was last ended by force or nil

local RANGE, LAPSE = 64, 1500000

local last = tonumber(call('GET', KEYS[2]) or 0)
local queue, waiters = call('ZRANGE', KEYS[3], 0, -1, 'WITHSCORES'), {}
for i = 1, #queue, 2 do
  local token, place = queue[i], tonumber(queue[i + 1])
  local beat = string.match(call('HGET', KEYS[4], token) or '0', '%d+') or 0
  if now - beat <= LAPSE then
    table.insert(waiters, token)
    table.insert(waiters, place)
  end
end
local start, broken = math.max(last - RANGE + 1, 0), tonumber(call('GET', KEYS[5])) or false
return { now, 'seen', call('GET', KEYS[1]), start, call('PTTL', KEYS[1]), waiters, broken }
