// Turns with redlock or with redis-semaphore: the arguments are which, the server's URL and for how many microseconds it keeps what it got.
const { Redis } = require("ioredis");
const { setTimeout: sleep } = require("node:timers/promises");
const { createInterface } = require("node:readline");

const [kind, url, hold] = process.argv.slice(2);
const TTL = 10_000;
const now = process.hrtime.bigint;
const locks = {
  redlock(client) {
    const { default: Redlock } = require("redlock");
    const redlock = new Redlock([client], { retryCount: -1 });
    return { acquire: () => redlock.acquire(["bench-redlock"], TTL), release: (lock) => lock.release() };
  },
  "redis-semaphore"(client) {
    const { Mutex } = require("redis-semaphore");
    const mutex = new Mutex(client, "bench", { lockTimeout: TTL, acquireTimeout: 60_000 });
    return { acquire: () => mutex.acquire(), release: () => mutex.release() };
  },
};

async function main() {
  const client = new Redis(url);
  await client.ping();
  const lock = locks[kind](client);
  process.stdout.write("r");
  const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
  const until = BigInt((await lines.next()).value);
  const turns = [];
  while (now() < until) {
    const asked = now();
    const held = await lock.acquire();
    const acquired = now();
    if (Number(hold)) await sleep(Number(hold) / 1000);
    const released = now();
    await lock.release(held);
    turns.push(acquired, asked, acquired, released);
  }
  process.stdout.write(Buffer.from(BigUint64Array.from(turns).buffer), () => process.exit(0));
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
