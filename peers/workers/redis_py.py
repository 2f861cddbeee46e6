"""Turns with the lock of redis-py: the arguments are the server's URL and for how many microseconds it keeps what it got."""

import struct
import sys
import time

import redis

url, hold = sys.argv[1], int(sys.argv[2]) / 1e6
client = redis.Redis.from_url(url)
client.ping()
lock = client.lock("bench-py", timeout=10)
sys.stdout.buffer.write(b"r")
sys.stdout.buffer.flush()
until, now, turns = int(sys.stdin.readline()), time.monotonic_ns, []
while now() < until:
    asked = now()
    lock.acquire()
    acquired = now()
    if hold:
        time.sleep(hold)
    released = now()
    lock.release()
    turns.append((acquired, asked, acquired, released))
sys.stdout.buffer.write(b"".join(struct.pack("<4Q", *turn) for turn in turns))
