-- The fast path of an acquire, for its three common cases: a heartbeat while another client holds the name; a name that no client holds
-- or waits for; a name that another client holds, if the caller joins the end of the queue. The functions of record.lua cost more to set up
-- than these cases take. In every other case it changes nothing, and acquire.lua goes on.
--
-- KEYS, ARGV, Returns  as in acquire.lua; if the fence of a grant is the server's time, only that number

-- The time of a heartbeat by a waiter with this many ahead of it. It is later by as much as its pause is longer than 400 ms: 50 ms for each
-- waiter, at most 12 s. A waiter that polls has no longer pause.
local function heartbeat_behind(ahead)
  if ARGV[5] == '1' then return now end
  return now + math.min(math.max(50000 * (ahead + 1), 400000), 12000000) - 400000
end

-- Whether another client holds the name, with no more time left than the ttl at the end of its token. A longer lease is for `trim`.
local function is_sound(holder, left)
  return holder and holder ~= ARGV[2] and left <= tonumber(string.match(holder, ':(%d+)$', -10) or left)
end

if now <= tonumber(ARGV[7]) and tonumber(ARGV[6]) <= now + 31536000000000 then
  local joined_at = ARGV[4] ~= 'join' and ARGV[4] ~= 'no' and call('ZSCORE', KEYS[3], ARGV[2])
  local holder = joined_at and call('GET', KEYS[1])
  local left = holder and call('PTTL', KEYS[1])
  if is_sound(holder, left) then
    local start = math.max((call('GET', KEYS[2]) or 0) - 63, 0)
    local ahead = call('ZRANK', KEYS[3], ARGV[2])
    call('HSET', KEYS[4], ARGV[2], string.format('%.0f %s %s', heartbeat_behind(ahead), ARGV[3], ARGV[5]))
    call('PEXPIRE', KEYS[3], '30000')
    call('PEXPIRE', KEYS[4], '30000')
    return { now, 'waiting', tonumber(joined_at), ahead, holder, start, left }
  end
  local is_waited_for = call('EXISTS', KEYS[3]) == 1
  if not is_waited_for and call('SET', KEYS[1], ARGV[2], 'NX', 'PX', ARGV[3]) then
    -- The clock is nearly always ahead of the last fence, and of the highest fence that the client has seen.
    local last = redis.pcall('SET', KEYS[2], now + 63, 'PX', ARGV[8], 'GET')
    local number = type(last) ~= 'table' and tonumber(last or 0)
    if not (number and number < 9007199254740864) then
      -- The fence key has another type, or a value that cannot be incremented: restore it.
      call('DEL', KEYS[1])
      if type(last) == 'table' then return last end
      call('SET', KEYS[2], last)
      return redis.error_reply(number and 'WRONGTYPE the last fence is out of range' or 'WRONGTYPE the last fence is no number')
    end
    local highest = math.max(number, ARGV[6])
    if highest < now then return now end
    local ahead = math.floor((highest + 1) / 1000) - math.floor(now / 1000)
    call('SET', KEYS[2], highest + 64, 'PX', ahead + ARGV[8])
    return { now, 'granted', highest + 1 }
  end
  holder = ARGV[4] == 'join' and call('GET', KEYS[1])
  left = holder and call('PTTL', KEYS[1])
  if is_sound(holder, left) and not (is_waited_for and call('ZSCORE', KEYS[3], ARGV[2])) then
    local ahead = is_waited_for and call('ZCARD', KEYS[3]) or 0
    call('HSET', KEYS[4], ARGV[2], string.format('%.0f %s %s', heartbeat_behind(ahead), ARGV[3], ARGV[5]))
    call('ZADD', KEYS[3], now, ARGV[2])
    if call('ZRANK', KEYS[3], ARGV[2]) == ahead then
      call('PEXPIRE', KEYS[3], '30000')
      call('PEXPIRE', KEYS[4], '30000')
      local start = math.max((call('GET', KEYS[2]) or 0) - 63, 0)
      return { now, 'waiting', now, ahead, holder, start, left }
    end
    -- The clock was set back, so this is not the end of the queue: undo.
    call('ZREM', KEYS[3], ARGV[2])
    call('HDEL', KEYS[4], ARGV[2])
  end
end

