-- Gives back a lease that nobody waits for: the common case, before anything is set up for the others.

if redis.call('GET', KEYS[1]) == ARGV[2] and redis.call('EXISTS', KEYS[3]) == 0 then
  redis.call('DEL', KEYS[1])
  -- Nearly always within the range of the lease.
  local last = tonumber(redis.call('SET', KEYS[2], ARGV[3], 'PX', '86400000', 'GET') or 0)
  local used = tonumber(ARGV[3])
  if used > last or used < last - 63 then
    redis.call('SET', KEYS[2], math.min(math.max(used, last - 63, 0), last), 'PX', '86400000')
  end
  local time = redis.call('TIME')
  return { time[1] * 1000000 + time[2], 'done' }
end
