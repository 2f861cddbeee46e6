-- What the operations on a name are made of: the Lua side of src/record/transitions.rs. It stands before each of them, behind clock.lua.
--
-- KEYS  lock: the holder's token, with PX · fence: the last fence that is used or reserved
--       broken, for those that use force: the fence that started the range of the lease that was last ended by it
--       queue: waiter's token -> place · beats: waiter's token -> "last beat (µs), ttl (ms), whether it polls (0, 1)"; the time of a beat is
--       later by as much as the pause after it is longer than 400 ms
-- ARGV  1: what stands before a session's id in the name of its channel. One that begins with a brace belongs to the slot of the keys, on a
--          cluster. The last one: how long the last fence is remembered after the lease (ms). The rest is said by each operation
-- Every script returns the server's time (µs) first, or nil where it did not look at its clock, then a word, then what belongs to it.
-- Where a grant could not be published, the reason is the last element.

local LOCK, FENCE, QUEUE, BEATS = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local CHANNELS = ARGV[1]
local PUBLISH = string.byte(CHANNELS) == 123 and 'SPUBLISH' or 'PUBLISH'
local RANGE, PROBATION, LAPSE, TWO_BEATS = 64, 1000, 1500000, 800000
local QUEUE_LIFE, REMEMBERED, MEMORY = 30000, 60000, tonumber(ARGV[#ARGV])
-- A year, in µs; and where doubles end, less room for two ranges.
local MOST_AHEAD, FENCE_END = 31536000000000, 9007199254740864

local unpublished

local function last_fence()
  return tonumber(call('GET', FENCE) or 0)
end

-- Where the holder's range starts.
local function start_of(last)
  return math.max(last - RANGE + 1, 0)
end

-- It is remembered while a lease lasts (ms), until the clock is past it, and for `MEMORY` after that: a clock that was set back by no more
-- gives no lower one.
local function set_last(last, lease)
  local ahead = math.floor(start_of(last) / 1000) - math.floor(now / 1000)
  call('SET', FENCE, last, 'PX', math.max(lease, 0) + math.max(ahead, 0) + MEMORY)
end

-- By how much a floor is above the clock and the last fence, if that is more than a clock can be wrong by: nothing is counted on from there.
local function ahead_by(floor)
  if floor <= now + MOST_AHEAD then return false end
  local by = floor - math.max(now, last_fence())
  return by > MOST_AHEAD and by
end

-- Whether a fence can be given above these. The last one may be no number, or one that none of us wrote.
local function can_count_on(last, floor)
  return last and last < FENCE_END and floor < FENCE_END
end

local function uncountable()
  return redis.error_reply('WRONGTYPE the last fence is out of range')
end

-- The next range of fences, above all that was given and above the client's floor.
local function reserve(last, floor, lease)
  local fence = math.max(now, last + 1, floor + 1)
  set_last(fence + RANGE - 1, lease)
  return fence
end

-- Fences first: where their key is something else, the script ends there, and must have changed nothing.
local function grant(token, ttl, floor)
  local last = last_fence()
  if not can_count_on(last, floor) then return uncountable() end
  local fence = reserve(last, floor, ttl)
  call('SET', LOCK, token, 'PX', ttl)
  return { now, 'granted', fence }
end

-- The holder's own lease: never shorter than it was.
local function extend(ttl, floor)
  local last = last_fence()
  if not can_count_on(last, floor) then return uncountable() end
  if call('PTTL', LOCK) < ttl then call('PEXPIRE', LOCK, ttl) end
  local lease = call('PTTL', LOCK)
  local start = start_of(last)
  if floor >= start then return { now, 'granted', reserve(last, floor, lease) } end
  if call('PTTL', FENCE) < lease + MEMORY then call('PEXPIRE', FENCE, lease + MEMORY) end
  return { now, 'granted', start }
end

-- The longest that a lease under this token is asked to last (ms); nil of a lock of another library, and of an older token.
local function longest(token)
  local random, session, ttl = string.match(token, '^(%x+):(%x+):[^:]*:[^:]*:%d+:[^:]*:([1-9]%d*)$')
  if ttl and #random == 32 and #session == 16 then return tonumber(ttl) end
end

-- A lease that has more left than that was lengthened by a clock that was set back. Its holder believes in less than a ttl from now.
local function trim(holder)
  local ttl = longest(holder)
  if ttl and call('PTTL', LOCK) > ttl then call('PEXPIRE', LOCK, ttl) end
end

-- Takes a waiter out of the queue.
local function dequeue(token)
  if call('ZREM', QUEUE, token) == 1 then call('HDEL', BEATS, token) end
end

-- After an expiry, a living waiter has beaten since the last grant, unless that is too young to tell, or from the future.
local function silence_allowed_after_expiry(last)
  local since_last_grant = now - start_of(last)
  if since_last_grant < TWO_BEATS then return LAPSE end
  return math.min(LAPSE, since_last_grant)
end

-- Tells a waiter of its grant; whether it can be taken for alive.
local function publish(token, fence, term, polls)
  -- Not by %s: that ends a text at its first zero byte.
  local message = string.format('%.0f %.0f %d ', fence, now, term) .. token .. ' ' .. LOCK
  -- Not to replicas: whoever listens there is not counted here, and would believe a grant that is not made. Guarded, because not
  -- every server has it.
  pcall(redis.set_repl, redis.REPL_NONE)
  local heard = redis.pcall(PUBLISH, CHANNELS .. string.sub(token, 34, 49), message)
  pcall(redis.set_repl, redis.REPL_ALL)
  if type(heard) == 'table' then
    unpublished = heard.err
    return true
  end
  return polls or heard > 0
end

-- Gives a free name, whose fences can be counted on, to the first waiter that was silent for no longer than is allowed; whoever can't be told, and does not poll, is
-- dead, and the next one is tried. `last` is the last fence where it is known; the one who asks is left in the queue if it is first.
-- Returns who holds the name then, or false, and whether that reserved fences.
local function settle(last, silence, asker)
  local is_reserved = false
  while true do
    local first = call('ZRANGE', QUEUE, 0, 0)[1]
    if not first then break end
    last = last or last_fence()
    if not can_count_on(last, 0) then break end
    silence = silence or silence_allowed_after_expiry(last)
    local beat, ttl, polls = string.match(call('HGET', BEATS, first) or '0 0 0', '(%d+) (%d+) (%d)')
    -- A beat that none of us wrote is nobody's.
    local is_alive = beat and now - beat <= silence
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

-- The lease under these fences was ended by force: it is shown for a while. Only after what may fail.
local function remember_broken(last)
  call('SET', KEYS[5], start_of(last), 'PX', REMEMBERED)
end

-- The lease is given up by its holder or for it, with its last fence: the next waiter's turn. Whether that reserved fences.
local function vacate(last)
  local next_holder, is_reserved = settle(last, LAPSE)
  if not next_holder then call('DEL', LOCK) end
  return is_reserved
end

-- Gives a lease back, having used its fences up to `used`. Whether the token held the name; and who does if it did not.
local function give_back(token, used)
  local holder = call('GET', LOCK)
  dequeue(token)
  if holder ~= token then return false, holder or settle() end
  local last = last_fence()
  -- Unused fences go back, or ranges would outrun the clock.
  used = math.min(math.max(used, start_of(last)), last)
  if not vacate(used) then set_last(used, 0) end
  return true
end
