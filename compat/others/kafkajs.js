// kafkajs at work: `node kafkajs.js COMMAND BOOTSTRAP ... NAME=VALUE ...`; compat/others.py says what
// each does.
const { readFileSync } = require("node:fs");
const { Kafka, Partitioners, logLevel } = require("kafkajs");

const IDLE_MS = 3000; // without a record for so long, a reader has read everything
const PATIENCE_MS = 30000;

const isSetting = (argument) => argument.includes("=");
const [command, bootstrap, ...rest] = process.argv.slice(2).filter((each) => !isSetting(each));
const settings = process.argv.filter(isSetting).map((each) => /^(.*?)=(.*)$/s.exec(each).slice(1));
const given = Object.fromEntries(settings);
const kafka = new Kafka({
  brokers: bootstrap.split(","),
  logLevel: logLevel.NOTHING,
  connectionTimeout: 20000, // the default of 1 s is short for a busy machine
  reauthenticationThreshold: 500, // by default sessions of 10 s are renewed with each request
  ssl: encryption(),
  sasl: login(),
});
const createPartitioner = Partitioners.DefaultPartitioner;

function encryption() {
  if (!(given["security.protocol"] ?? "").endsWith("SSL")) return undefined;
  const store = given["ssl.keystore.location"];
  const own = store ? { cert: readFileSync(store), key: readFileSync(store) } : {};
  return { ca: readFileSync(given["ssl.truststore.location"]), ...own };
}

function login() {
  const mechanism = given["sasl.mechanism"];
  if (mechanism === undefined) return undefined;
  const [username, password] = [given["sasl.username"], given["sasl.password"]];
  const path = given["sasl.oauthbearer.token.endpoint.url"]?.replace("file://", "");
  const oauthBearerProvider = async () => ({ value: readFileSync(path, "utf8").trim() });
  return { mechanism: mechanism.toLowerCase(), username, password, oauthBearerProvider };
}

async function produce(topic, count) {
  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1, createPartitioner });
  await producer.connect();
  const messages = [...Array(Number(count)).keys()].map((number) => ({
    key: `key ${number % 10}`,
    value: String(number),
  }));
  await producer.send({ topic, acks: -1, messages });
  await producer.disconnect();
}

async function exchange(topic, groupId, count) {
  await produce(topic, count);
  await consume(topic, groupId, PATIENCE_MS / 1000);
}

async function trickle(topic, count) {
  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1, createPartitioner });
  await producer.connect();
  for (let number = 0; number < Number(count); number += 1) {
    await producer.send({ topic, acks: -1, messages: [{ value: String(number) }] });
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  await producer.disconnect();
}

/** Joins a group; `take` gets one batch at a time, until nothing has come for a while. */
async function join(topic, groupId, patienceMs, take) {
  const consumer = kafka.consumer({ groupId, readUncommitted: false });
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  let heard = Date.now() + patienceMs - IDLE_MS;
  let failure = null;
  await consumer.run({
    autoCommit: false,
    eachBatchAutoResolve: false,
    partitionsConsumedConcurrently: 1,
    eachBatch: async (payload) => {
      try {
        if (payload.isRunning() && !payload.isStale()) await take(consumer, payload);
      } catch (error) {
        failure = error;
      }
      heard = Date.now();
    },
  });
  while (failure === null && Date.now() - heard < IDLE_MS) {
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  await consumer.disconnect();
  if (failure !== null) throw failure;
}

function next(batch) {
  return String(BigInt(batch.lastOffset()) + 1n);
}

async function consume(topic, groupId, seconds) {
  await join(topic, groupId, 1000 * seconds, async (consumer, { batch, resolveOffset }) => {
    for (const { offset, value } of batch.messages) {
      console.log(`${batch.partition} ${offset} ${value}`);
    }
    await consumer.commitOffsets([{ topic, partition: batch.partition, offset: next(batch) }]);
    resolveOffset(batch.lastOffset());
  });
}

async function transform(from, to, groupId) {
  const producer = kafka.producer({
    transactionalId: groupId,
    idempotent: true,
    maxInFlightRequests: 1,
    createPartitioner,
  });
  await producer.connect();
  let turn = 0;
  await join(from, groupId, PATIENCE_MS, async (_, { batch, resolveOffset }) => {
    const messages = batch.messages.map(({ key, value }) => ({ key, value: `t${value}` }));
    const partitions = [{ partition: batch.partition, offset: next(batch) }];
    // What is aborted is done again at once, in a second transaction.
    for (let isDone = false; !isDone; ) {
      turn += 1;
      const transaction = await producer.transaction();
      await transaction.send({ topic: to, messages });
      await transaction.sendOffsets({
        consumerGroupId: groupId,
        topics: [{ topic: from, partitions }],
      });
      isDone = turn % 3 !== 1;
      await (isDone ? transaction.commit() : transaction.abort());
    }
    resolveOffset(batch.lastOffset());
  });
  await producer.disconnect();
}

async function transact(topic, count) {
  const producer = kafka.producer({
    transactionalId: topic,
    idempotent: true,
    maxInFlightRequests: 1,
    createPartitioner,
    retry: { initialRetryTime: 5, retries: 50, maxRetryTime: 20 },
  });
  await producer.connect();
  for (let number = 0; number < Number(count); number += 1) {
    const committed = await producer.transaction();
    await committed.send({ topic, messages: [{ value: `c${number}` }] });
    await committed.commit();
    const aborted = await producer.transaction();
    await aborted.send({ topic, messages: [{ value: `a${number}` }] });
    await aborted.abort();
  }
  await producer.disconnect();
}

({ produce, consume, exchange, transform, transact, trickle })[command](...rest).then(
  () => process.exit(0),
  (error) => {
    console.error(error);
    // One line that says most is last.
    console.error(`${error.name}: ${error.message}`.trim());
    process.exit(1);
  },
);
