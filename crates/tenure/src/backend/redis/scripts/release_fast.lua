-- The fast path of a release, for its two common cases: no client waits, or the first waiter is alive and gets the message. The functions of
-- record.lua cost more to set up than these cases take. In every other case it changes nothing, and release.lua goes on.
--
-- KEYS, ARGV, Returns  as in release.lua; if no client waits and the script did not read the clock, `done` is 0 alone

if redis.call('GET', KEYS[1]) == ARGV[2] then
  local first = redis.call('ZRANGE', KEYS[3], 0, 0)[1]
  local used = tonumber(ARGV[3])
  if not first then
    redis.call('DEL', KEYS[1])
    -- 2^53 and above: no fences to give back.
    if used >= 9007199254740992 then return 0 end
  end
  local time = redis.call('TIME')
  local now = time[1] * 1000000 + time[2]
  if not first then
    local last = tonumber(redis.call('GET', KEYS[2]) or 0)
    used = math.min(math.max(used, last - 63, 0), last)
    local ahead = math.floor((used - 63) / 1000) - math.floor(now / 1000)
    redis.call('SET', KEYS[2], used, 'PX', math.max(ahead, 0) + ARGV[4])
    return 0
  end
  local heartbeat, ttl, polls = string.match(redis.call('HGET', KEYS[4], first) or '0 0 0', '(%d+) (%d+) (%d)')
  local last = tonumber(redis.call('GET', KEYS[2]) or 0)
  if heartbeat and now - heartbeat <= 1500000 and last < 9007199254740864 and not redis.call('ZSCORE', KEYS[3], ARGV[2]) then
    local fence = math.max(now, math.min(math.max(used, last - 63, 0), last) + 1)
    local term = math.min(ttl, 1000)
    local message = string.format('%.0f %.0f %d ', fence, now, term) .. first .. ' ' .. KEYS[1]
    local verb = string.byte(ARGV[1]) == 123 and 'SPUBLISH' or 'PUBLISH'
    pcall(redis.set_repl, redis.REPL_NONE)
    local receivers = redis.pcall(verb, ARGV[1] .. string.sub(first, 34, 49), message)
    pcall(redis.set_repl, redis.REPL_ALL)
    if type(receivers) == 'number' and (receivers > 0 or polls == '1') then
      redis.call('SET', KEYS[1], first, 'PX', term)
      local ahead = fence > now and math.floor(fence / 1000) - math.floor(now / 1000) or 0
      redis.call('SET', KEYS[2], fence + 63, 'PX', term + ahead + ARGV[4])
      redis.call('ZREM', KEYS[3], first)
      redis.call('HDEL', KEYS[4], first)
      return { now, 'done' }
    end
  end
end

