-- Takes the name, or waits for it. The holder's own acquire extends its lease; a waiter's is its beat.
--
-- ARGV  2: token · 3: ttl (ms) · 4: `no` to take it now or not at all, `join`, or the place to keep · 5: whether it polls (0, 1)
--       6: the highest fence that the client has seen · 7: refused when executed later than this (µs) · 8: ttl and memory together, so that
--       the short way need not add them (ms) · 9: memory, see record.lua
-- Returns  granted, fence · waiting, place, waiters ahead, holder, its fence, ms left · busy, waiters, holder, its fence, ms left · late
--          ahead, by how many µs the floor is too high

local token, ttl, wait, polls = ARGV[2], tonumber(ARGV[3]), ARGV[4], ARGV[5]
local floor, not_after = tonumber(ARGV[6]), tonumber(ARGV[7])

if now > not_after then return { now, 'late' } end
local ahead = ahead_by(floor)
if ahead then return { now, 'ahead', ahead } end
local holder = call('GET', LOCK)
if holder == token then return extend(ttl, floor) end
if holder then trim(holder) end
local last = call('ZREVRANGE', QUEUE, 0, 0, 'WITHSCORES')
if not holder and not last[1] then return grant(token, ttl, floor) end

if wait == 'no' then
  -- Only a name that nobody living waits for is taken past the queue.
  dequeue(token)
  holder = holder or settle()
  if not holder then return grant(token, ttl, floor) end
  return { now, 'busy', call('ZCARD', QUEUE), holder, start_of(last_fence()), call('PTTL', LOCK), unpublished }
end

-- A second acquire, and a beat, keep the place that the queue knows.
local place = call('ZSCORE', QUEUE, token) or tonumber(wait) or math.max(now, (last[2] or 0) + 1)
-- The beat first: the queue was read, and is one, but the beats may be something else, and then nothing must have changed.
call('HSET', BEATS, token, string.format('%.0f %d %s', now, ttl, polls))
call('ZADD', QUEUE, place, token)
call('PEXPIRE', QUEUE, QUEUE_LIFE)
call('PEXPIRE', BEATS, QUEUE_LIFE)
if not holder then
  local is_reserved
  holder, is_reserved = settle(nil, nil, token)
  if not holder and not is_reserved then
    dequeue(token)
    return grant(token, ttl, floor)
  end
end
local before = call('ZRANK', QUEUE, token)
if before and beat_of(before) > now then
  call('HSET', BEATS, token, string.format('%.0f %d %s', beat_of(before), ttl, polls))
end
return { now, 'waiting', tonumber(place), before or 0, holder or token, start_of(last_fence()), call('PTTL', LOCK), unpublished }
