// A client in JavaScript: adds a task, waits for it, reads the result, prints JSON.
// Usage: node client.js HOST PORT, beside the code generated from thrift/judicator.thrift (gen/).
"use strict";

const crypto = require("crypto");
const thrift = require("thrift");
const Judicator = require("./gen/Judicator");
const types = require("./gen/judicator_types");

const nameOf = (values, number) => Object.keys(values).find((name) => values[name] === number);
const number = (value) => (value === null || value === undefined ? null : Number(value));

function makeTest(name, input, expected) {
  return new types.Test({
    name,
    input: new types.Data({ inline_data: Buffer.from(input) }),
    expected: new types.Data({ inline_data: Buffer.from(expected) }),
  });
}

function makeTask() {
  return new types.Task({
    execute: new types.Step({
      command: ["/bin/cat"],
      limits: new types.Limits({ cpu_ms: 2000 }),
    }),
    tests: [makeTest("right", "hello\n", "hello\n"), makeTest("wrong", "1\n", "2\n")],
    user: "js",
    key: crypto.randomUUID(),
  });
}

async function waitFor(judicator, id) {
  let known = types.Status.PENDING;
  for (;;) {
    const info = await judicator.wait(id, known, 10000, types.GET_RESULT, -1);
    if (info.done) return info;
    known = info.status;
  }
}

async function knows(judicator, id) {
  try {
    await judicator.get(id, types.GET_SUMMARY);
    return true;
  } catch (error) {
    if (error instanceof types.NotFound) return false;
    throw error;
  }
}

async function offendingField(judicator, task) {
  try {
    await judicator.add(task);
    return null;
  } catch (error) {
    if (error instanceof types.InvalidRequest) return error.field;
    throw error;
  }
}

async function main(host, port) {
  const connection = thrift.createConnection(host, Number(port), {
    transport: thrift.TFramedTransport,
    protocol: thrift.TBinaryProtocol,
    connect_timeout: 2000,
    timeout: 30000,
  });
  const failed = new Promise((_, reject) => connection.on("error", reject));
  const judicator = thrift.createClient(Judicator, connection);
  const talk = async () => {
    const task = makeTask();
    const id = await judicator.add(task);
    const again = await judicator.add(task); // the key makes it the same task
    const wrong = makeTask();
    wrong.execute.limits.cpu_ms = -1;
    const field = await offendingField(judicator, wrong);
    const unknown = await knows(judicator, "0".repeat(24));
    const info = await waitFor(judicator, id);
    return {
      id: info.id,
      status: nameOf(types.Status, info.status),
      verdict: nameOf(types.Verdict, info.verdict),
      added_again: again,
      unknown_is_known: unknown,
      offending_field: field,
      tests: info.result.tests.map((test) => ({
        name: test.name,
        verdict: nameOf(types.Verdict, test.verdict),
        stdout: test.outcome.stdout_data.toString(),
        exit_code: test.outcome.exit_code,
        wall_ms: number(test.outcome.wall_ms),
      })),
    };
  };
  console.log(JSON.stringify(await Promise.race([talk(), failed])));
  connection.end();
}

main(process.argv[2], process.argv[3]).catch((error) => {
  console.error(`client: ${error.message || error}`);
  process.exit(1);
});
