-- Reads the server's clock: `now` is in µs. It stands before the operations that need it.

local call = redis.call
local time = call('TIME')
local now = time[1] * 1000000 + time[2]

