// A producer that is not Go: an entry is work for an agent as soon as it stands in the stream, and XADD is all it takes.
//
//   REDIS_URL=redis://localhost:6379 STREAM=agent:tasks node producer.mjs [orders]
//
// Run it twice: the second run adds entries again and no work, for the task ids are the same.

import { createHash, randomBytes } from 'node:crypto';
import { createClient } from 'redis';

const url = process.env.REDIS_URL ?? 'redis://localhost:6379';
const stream = process.env.STREAM ?? 'agent:tasks';
const count = Number(process.argv[2] ?? 3);
if (!Number.isInteger(count) || count < 1) {
  console.error(`usage: node producer.mjs [orders]; ${process.argv[2]} is not a number of orders`);
  process.exit(2);
}

// task makes the fields of an entry. All values are strings (or Buffers: the payload's bytes are kept exactly).
function task({ id, type, payload, source }) {
  const body = JSON.stringify(payload);
  return {
    // The identity of the work. Derive it from what the work is about (an order, a webhook's delivery id), never from
    // the clock or a random number: then a retry of this producer, or of its caller, is the same work.
    task_id: id,
    // The agent that does it: "agent" or "agent/handler".
    type,
    // One id with another type or payload is a conflict and goes to the dead letters. So nothing that changes from
    // call to call, like the time, belongs in the payload; and JSON has to be written in one order of keys.
    payload: body,
    content_type: 'application/json',
    // From here on: for people and traces. None of it is part of the identity.
    created_at: String(Date.now()), // Unix milliseconds
    event_id: createHash('sha256').update(`${source}\n${id}\n${body}`).digest('hex').slice(0, 32),
    source,
    traceparent: `00-${randomBytes(16).toString('hex')}-${randomBytes(8).toString('hex')}-01`,
  };
}

const redis = createClient({
  url,
  // A reply can be lost after Redis has added the entry, and then a retry adds it twice. That is harmless here.
  socket: { reconnectStrategy: (retries) => (retries < 5 ? 100 * 2 ** retries : new Error(`no Redis at ${url}`)) },
});
redis.on('error', (err) => console.error(`redis: ${err.message || err.code}`));

try {
  await redis.connect();
  const orders = Array.from({ length: count }, (_, n) => ({ order: `A-${n + 1}`, cents: 1990 + 100 * n }));
  // Commands that are sent in one go share a pipeline. No MAXLEN: it would trim entries that nobody has handled yet.
  const batch = 500;
  for (let from = 0; from < orders.length; from += batch) {
    const tasks = orders
      .slice(from, from + batch)
      .map((o) => task({ id: `order-${o.order}`, type: 'echo', payload: o, source: 'polyglot' }));
    const ids = await Promise.all(tasks.map((t) => redis.xAdd(stream, '*', t)));
    tasks.forEach((t, n) => console.log(`${t.task_id}\tentry ${ids[n]}\tweir task ${t.task_id}`));
  }
  await redis.close();
} catch (err) {
  console.error(`producer: ${err.message}`);
  if (redis.isOpen) redis.destroy();
  process.exitCode = 1;
}
