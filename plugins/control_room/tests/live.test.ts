import assert from "node:assert/strict";
import { mock, test } from "node:test";
import { address, readAhead, recent } from "../src/live.ts";
import { dagAddress } from "../src/runs.ts";

function servedFrom(baseURI: string) {
  Object.assign(globalThis, { document: { baseURI } });
}

function answerWith(status: number, state: unknown) {
  servedFrom("http://airflow/");
  return mock.method(globalThis, "fetch", async () => new Response(JSON.stringify(state), { status }));
}

test("addresses stay below the path of a proxy", () => {
  servedFrom("http://host/ops/airflow/");
  assert.equal(address("sluice/state", { connection: "shop" }), "http://host/ops/airflow/sluice/state?connection=shop");
  assert.equal(dagAddress("drain_host"), "http://host/ops/airflow/dags/drain_host");
});

test("a view begins with the state that was read ahead, of its own pipeline", async () => {
  const asked = answerWith(200, { at: 1, tiers: [] });
  await readAhead("other");
  assert.equal(String(asked.mock.calls[0]!.arguments[0]), "http://airflow/sluice/state?connection=other");
  assert.deepEqual(recent("other"), { at: 1, tiers: [] });
  assert.deepEqual(recent(null), {});
});

test("a state older than ten seconds is not shown again", async () => {
  mock.timers.enable({ apis: ["Date"], now: 1_000 });
  answerWith(200, { at: 1, tiers: [] });
  await readAhead("old");
  mock.timers.tick(9_999);
  assert.deepEqual(recent("old"), { at: 1, tiers: [] });
  mock.timers.tick(1);
  assert.deepEqual(recent("old"), {});
  mock.timers.reset();
});

test("an API server that refuses leaves nothing to begin with", async () => {
  answerWith(403, { detail: "no" });
  await readAhead("refused");
  assert.deepEqual(recent("refused"), {});
});
