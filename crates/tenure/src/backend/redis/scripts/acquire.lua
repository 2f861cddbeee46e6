-- Takes the name, or waits for it. The holder's own acquire extends its lease; an acquire by a waiter is its heartbeat.
--
-- KEYS     as in record.lua
-- ARGV     2: token · 3: ttl (ms) · 4: `no` to take it now or not at all, `join`, or when the waiter joined (µs) · 5: whether it polls (0, 1)
--          6: the highest fence that the client has seen · 7: the server refuses the request after this time (µs)
--          8: ttl plus memory (ms), so that acquire_fast.lua need not add them · 9: memory, see record.lua
-- Returns  granted, fence · waiting, when it joined, waiters ahead, holder, its fence, ms left
--          busy, waiters, holder, its fence, ms left · late · ahead, by how many µs the client's highest fence is too high

local token, ttl, wait, polls = ARGV[2], tonumber(ARGV[3]), ARGV[4], ARGV[5]
local floor, not_after = tonumber(ARGV[6]), tonumber(ARGV[7])

if now > not_after then return { now, 'late' } end
local excess = excess_of(floor)
if excess then return { now, 'ahead', excess } end
local holder = call('GET', LOCK)
if holder == token then return extend(ttl, floor) end
if holder then trim(holder) end
local last = call('ZREVRANGE', QUEUE, 0, 0, 'WITHSCORES')
if not holder and not last[1] then return grant(token, ttl, floor) end

if wait == 'no' then
  -- Without waiting, a client gets a name only if no living waiter wants it.
  dequeue(token)
  holder = holder or settle()
  if not holder then return grant(token, ttl, floor) end
  return { now, 'busy', call('ZCARD', QUEUE), holder, start_of(last_fence()), call('PTTL', LOCK), unpublished }
end

-- A repeated acquire, and a heartbeat, keep the position in the queue.
local joined_at = call('ZSCORE', QUEUE, token) or tonumber(wait) or math.max(now, (last[2] or 0) + 1)
-- The heartbeat first: QUEUE was read, so its type is right. If HEARTBEATS has another type, the script must end before it changes anything.
call('HSET', HEARTBEATS, token, string.format('%.0f %d %s', now, ttl, polls))
call('ZADD', QUEUE, joined_at, token)
call('PEXPIRE', QUEUE, QUEUE_LIFE)
call('PEXPIRE', HEARTBEATS, QUEUE_LIFE)
if not holder then
  local is_reserved
  holder, is_reserved = settle(nil, nil, token)
  if not holder and not is_reserved then
    dequeue(token)
    return grant(token, ttl, floor)
  end
end
local ahead = call('ZRANK', QUEUE, token)
if ahead and heartbeat_behind(ahead) > now then
  call('HSET', HEARTBEATS, token, string.format('%.0f %d %s', heartbeat_behind(ahead), ttl, polls))
end
return { now, 'waiting', tonumber(joined_at), ahead or 0, holder or token, start_of(last_fence()), call('PTTL', LOCK), unpublished }
