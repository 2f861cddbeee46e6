-- The shared part of the operations on a name: core/record/transitions.rs in Lua. It stands before each operation, and behind clock.lua.
--
-- KEYS     1: lock: the holder's token, with PX · 2: fence: the last fence that is used or reserved
--          3: queue: waiter's token -> when it joined (µs) · 4: heartbeats: waiter's token -> "last heartbeat (µs), ttl (ms), polls (0, 1)".
--          The time of a heartbeat is later by as much as the pause after it is longer than 400 ms
--          5: broken, only for force: the fence that started the range of the lease that was last ended by force
-- ARGV     1: the channel name up to the session's id; if it begins with a brace, the channel belongs to the slot of the keys on a cluster
--          the last one: memory, how long the last fence is remembered after the lease (ms); each operation describes the others
-- Returns  the server's time (µs), or nil if the script did not read the clock; then a word and its values. If the script could not publish
--          a grant, the reason is the last element

local LOCK, FENCE, QUEUE, HEARTBEATS = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local CHANNELS = ARGV[1]
local PUBLISH = string.byte(CHANNELS) == 123 and 'SPUBLISH' or 'PUBLISH'
local RANGE, PROBATION, LAPSE, TWO_HEARTBEATS = 64, 1000, 1500000, 800000
local QUEUE_LIFE, REMEMBERED, MEMORY = 30000, 60000, tonumber(ARGV[#ARGV])
-- A year in µs; and 2^53, where doubles stop being exact, less two ranges.
local MOST_AHEAD, FENCE_END = 31536000000000, 9007199254740864

local unpublished

local function last_fence()
  return tonumber(call('GET', FENCE) or 0)
end

-- The first fence of the holder's range.
local function start_of(last)
  return math.max(last - RANGE + 1, 0)
end

-- The fence key lives while the lease lasts (ms), until the clock has passed it, and for `MEMORY` after that. So a clock that is set back by
-- less than `MEMORY` yields no lower fence.
local function set_last(last, lease)
  local ahead = math.floor(start_of(last) / 1000) - math.floor(now / 1000)
  call('SET', FENCE, last, 'PX', math.max(lease, 0) + math.max(ahead, 0) + MEMORY)
end

-- By how much a floor is above the clock and the last fence, if that is more than an error of a clock explains; else false.
local function excess_of(floor)
  if floor <= now + MOST_AHEAD then return false end
  local by = floor - math.max(now, last_fence())
  return by > MOST_AHEAD and by
end

-- Whether a fence above these exists. Another program may have written the last one.
local function has_successor(last, floor)
  return last and last < FENCE_END and floor < FENCE_END
end

local function out_of_range()
  return redis.error_reply('WRONGTYPE the last fence is out of range')
end

-- Reserves the next range of fences, above all earlier ones and above the floor.
local function reserve(last, floor, lease)
  local fence = math.max(now, last + 1, floor + 1)
  set_last(fence + RANGE - 1, lease)
  return fence
end

-- The fence first: if its key has another type, the script ends here, and must have changed nothing.
local function grant(token, ttl, floor)
  local last = last_fence()
  if not has_successor(last, floor) then return out_of_range() end
  local fence = reserve(last, floor, ttl)
  call('SET', LOCK, token, 'PX', ttl)
  return { now, 'granted', fence }
end

-- Extends the holder's own lease, and never shortens it.
local function extend(ttl, floor)
  local last = last_fence()
  if not has_successor(last, floor) then return out_of_range() end
  if call('PTTL', LOCK) < ttl then call('PEXPIRE', LOCK, ttl) end
  local lease = call('PTTL', LOCK)
  local start = start_of(last)
  if floor >= start then return { now, 'granted', reserve(last, floor, lease) } end
  if call('PTTL', FENCE) < lease + MEMORY then call('PEXPIRE', FENCE, lease + MEMORY) end
  return { now, 'granted', start }
end

-- The ttl in a token (ms); nil for a lock of another library and for an older token.
local function ttl_of(token)
  local random, session, ttl = string.match(token, '^(%x+):(%x+):[^:]*:[^:]*:%d+:[^:]*:([1-9]%d*)$')
  if ttl and #random == 32 and #session == 16 then return tonumber(ttl) end
end

-- A lease has more time left than its ttl if the clock was set back. Its holder counts on less than one ttl from now.
local function trim(holder)
  local ttl = ttl_of(holder)
  if ttl and call('PTTL', LOCK) > ttl then call('PEXPIRE', LOCK, ttl) end
end

local function dequeue(token)
  if call('ZREM', QUEUE, token) == 1 then call('HDEL', HEARTBEATS, token) end
end

-- After an expiry, a living waiter has sent a heartbeat since the last grant, unless that grant is too recent to tell, or in the future.
local function silence_allowed_after_expiry(last)
  local since_last_grant = now - start_of(last)
  if since_last_grant < TWO_HEARTBEATS then return LAPSE end
  return math.min(LAPSE, since_last_grant)
end

-- Publishes a grant to its waiter. Returns whether the waiter counts as alive.
local function publish(token, fence, term, polls)
  -- Not with %s, which ends a text at its first zero byte.
  local message = string.format('%.0f %.0f %d ', fence, now, term) .. token .. ' ' .. LOCK
  -- Not to replicas: the server does not count their listeners, which would believe a grant that was not made. pcall, because not every
  -- server has set_repl.
  pcall(redis.set_repl, redis.REPL_NONE)
  local receivers = redis.pcall(PUBLISH, CHANNELS .. string.sub(token, 34, 49), message)
  pcall(redis.set_repl, redis.REPL_ALL)
  if type(receivers) == 'table' then
    unpublished = receivers.err
    return true
  end
  return polls or receivers > 0
end

-- Grants a free name, if a next fence exists, to the first waiter whose last heartbeat is recent enough. A waiter that does not get the
-- message, and does not poll, is dead: the next one is tried. `last` is the last fence, if known. If `asker` is the first, it stays in the queue.
-- Returns the new holder or false, and whether fences were reserved.
local function settle(last, silence, asker)
  local is_reserved = false
  while true do
    local first = call('ZRANGE', QUEUE, 0, 0)[1]
    if not first then break end
    last = last or last_fence()
    if not has_successor(last, 0) then break end
    silence = silence or silence_allowed_after_expiry(last)
    local heartbeat, ttl, polls = string.match(call('HGET', HEARTBEATS, first) or '0 0 0', '(%d+) (%d+) (%d)')
    -- A heartbeat in another format is not one of ours.
    local is_alive = heartbeat and now - heartbeat <= silence
    if is_alive and first == asker then return false, false end
    dequeue(first)
    if is_alive then
      local fence, term = math.max(now, last + 1), math.min(ttl, PROBATION)
      last, is_reserved, silence, asker = fence + RANGE - 1, true, LAPSE, nil
      if publish(first, fence, term, polls == '1') then
        call('SET', LOCK, first, 'PX', term)
        set_last(last, term)
        return first, true
      end
    end
  end
  if is_reserved then set_last(last, 0) end
  return false, is_reserved
end

-- Remembers for a while that the lease with this last fence was ended by force. Only after the calls that may fail.
local function remember_broken(last)
  call('SET', KEYS[5], start_of(last), 'PX', REMEMBERED)
end

-- Ends the lease with this last fence, and hands the name to the next waiter. Returns whether fences were reserved.
local function hand_over(last)
  local next_holder, is_reserved = settle(last, LAPSE)
  if not next_holder then call('DEL', LOCK) end
  return is_reserved
end

-- Ends the lease of this token, which used its fences up to `used`. Returns whether the token held the name, and the holder if it did not.
local function release(token, used)
  local holder = call('GET', LOCK)
  dequeue(token)
  if holder ~= token then return false, holder or settle() end
  local last = last_fence()
  -- Unused fences become free again, or ranges would outrun the clock.
  used = math.min(math.max(used, start_of(last)), last)
  if not hand_over(used) then set_last(used, 0) end
  return true
end
