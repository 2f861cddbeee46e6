-- Reads the state of a name, and changes nothing.
--
-- KEYS     1: lock · 2: fence · 3: queue · 4: heartbeats · 5: broken
-- Returns  the server's time (µs), then  seen, holder or nil, its fence, ms left (at most the ttl in its token), the living waiters, each with
--          the time when it joined (µs), the fence of the lease that was last ended by force or nil

local LOCK, FENCE, QUEUE, HEARTBEATS, BROKEN = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local RANGE, LAPSE = 64, 1500000

local last = tonumber(call('GET', FENCE) or 0)
local queue, waiters = call('ZRANGE', QUEUE, 0, -1, 'WITHSCORES'), {}
for i = 1, #queue, 2 do
  local token, joined_at = queue[i], tonumber(queue[i + 1])
  local heartbeat = string.match(call('HGET', HEARTBEATS, token) or '0', '%d+') or 0
  if now - heartbeat <= LAPSE then
    table.insert(waiters, token)
    table.insert(waiters, joined_at)
  end
end
local start, broken = math.max(last - RANGE + 1, 0), tonumber(call('GET', BROKEN)) or false
local holder, left = call('GET', LOCK), call('PTTL', LOCK)
-- A lease has more time left than its ttl if the clock was set back: `trim` in record.lua shortens it with the next acquire.
local random, session, ttl = string.match(holder or '', '^(%x+):(%x+):[^:]*:[^:]*:%d+:[^:]*:([1-9]%d*)$')
if ttl and #random == 32 and #session == 16 then left = math.min(left, ttl) end
return { now, 'seen', holder, start, left, waiters, broken }
