// A lock of redlock that does what it is told on stdin, and says on stdout how it went; interop/peer.rs lists the words.

import { createRequire } from "node:module";
import { createInterface } from "node:readline";

// The packages lie where they were installed, not above this file.
const [port, packages] = process.argv.slice(2);
const require = createRequire(`${packages}/`);
const { default: Redlock, ExecutionError, ResourceLockedError } = require("redlock");
const client = new (require("ioredis"))(Number(port));

const redlock = new Redlock([client], { retryDelay: 10, retryJitter: 5 });
// It tells of every failed try, and a listener it must have.
redlock.on("error", () => {});
let lock;

async function take(name, ttl, retryCount) {
  lock = await redlock.acquire([name], Number(ttl), { retryCount });
  return "acquired";
}

async function obey([verb, ...words]) {
  switch (verb) {
    case "acquire":
      return take(...words, -1);
    case "try":
      return take(...words, 0);
    case "release":
      await redlock.release(lock, { retryCount: 0 });
      return "released";
    case "extend":
      lock = await redlock.extend(lock, Number(words[0]), { retryCount: 0 });
      return "extended";
  }
}

// Whether the key was somebody else's, and nothing else went wrong.
async function isOthers(error) {
  if (!(error instanceof ExecutionError)) return false;
  const votes = await Promise.all(error.attempts);
  const against = votes.flatMap(({ votesAgainst }) => [...votesAgainst.values()]);
  return against.length > 0 && against.every((reason) => reason instanceof ResourceLockedError);
}

console.log(/\baddr=(\S+)/.exec(await client.call("CLIENT", "INFO"))[1]);
for await (const line of createInterface({ input: process.stdin })) {
  const words = line.split(" ");
  try {
    console.log(await obey(words));
  } catch (error) {
    if (!(await isOthers(error))) throw error;
    console.log(words[0] === "try" ? "busy" : "not owned");
  }
}
process.exit();
