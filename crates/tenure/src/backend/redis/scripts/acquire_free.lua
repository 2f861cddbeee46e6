-- Takes a name that nobody holds and nobody waits for: the common case, before anything is set up for the others.

do
  local time = redis.call('TIME')
  local now = time[1] * 1000000 + time[2]
  if now <= tonumber(ARGV[7]) and redis.call('EXISTS', KEYS[3]) == 0
    and redis.call('SET', KEYS[1], ARGV[2], 'NX', 'PX', ARGV[3]) then
    -- The clock is nearly always ahead of the last fence, and of the client's floor.
    local last = redis.pcall('SET', KEYS[2], now + 63, 'PX', '86400000', 'GET')
    if type(last) == 'table' then
      -- The key of fences is something else: nothing must have changed.
      redis.call('DEL', KEYS[1])
      return last
    end
    local highest = math.max(last or 0, ARGV[6])
    if highest < now then return { now, 'granted', now } end
    redis.call('SET', KEYS[2], highest + 64, 'PX', '86400000')
    return { now, 'granted', highest + 1 }
  end
end
