local call = redis.call
local time = call('TIME')
local now = time[1] * 1000000 + time[2]

