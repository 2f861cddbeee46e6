-- Looks, and changes nothing.
--
-- KEYS  1: lock · 2: fence · 3: queue · 4: beats · 5: broken
-- Returns the server's time (µs), then  seen, holder or nil, its fence, ms left (no more than the ttl in its token), the waiters that are alive, each with its place (µs),
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
local holder, left = call('GET', KEYS[1]), call('PTTL', KEYS[1])
-- What it has left beyond its ttl came of a clock that was set back: `trim` in record.lua ends it, when somebody asks for the name.
local random, session, ttl = string.match(holder or '', '^(%x+):(%x+):[^:]*:[^:]*:%d+:[^:]*:([1-9]%d*)$')
if ttl and #random == 32 and #session == 16 then left = math.min(left, ttl) end
return { now, 'seen', holder, start, left, waiters, broken }
