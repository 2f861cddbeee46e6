"""A lock of redis-py that does what it is told on stdin, and says on stdout how it went; interop/peer.rs lists the words."""

import sys

import redis
from redis.exceptions import LockNotOwnedError

client = redis.Redis(port=int(sys.argv[1]), single_connection_client=True)
lock = None


def take(name, ttl, blocking):
    global lock
    timeout = None if ttl == "none" else int(ttl) / 1000
    asked = client.lock(name, timeout=timeout, sleep=0.01)
    if not asked.acquire(blocking=blocking):
        return "busy"
    lock = asked
    return "acquired"


def obey(words):
    try:
        match words:
            case ["acquire", name, ttl]:
                return take(name, ttl, True)
            case ["try", name, ttl]:
                return take(name, ttl, False)
            case ["release"]:
                lock.release()
                return "released"
            case ["extend", ttl]:
                lock.extend(int(ttl) / 1000, replace_ttl=True)
                return "extended"
    except LockNotOwnedError:
        return "not owned"


print(client.client_info()["addr"], flush=True)
for line in sys.stdin:
    print(obey(line.split()), flush=True)
