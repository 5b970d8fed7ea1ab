import assert from "node:assert/strict";
import { test } from "node:test";
import { clock, count, duration, latency, rate, run, tone, workers } from "../src/words.ts";

test("a missing figure is a dash and never a zero", () => {
  for (const word of [count(null), rate(undefined), latency(null), duration(null), clock(0)]) assert.equal(word, "–");
  assert.deepEqual([count(0), rate(0), latency(0)], ["0", "0/s", "0 ms"]);
});

test("figures have units, and small rates a digit more", () => {
  assert.deepEqual([rate(0.53), rate(1234.4), latency(84.6), latency(1250)], ["0.5/s", "1,234/s", "85 ms", "1.3 s"]);
  assert.deepEqual([0.42, 59, 60, 3600, 90_000].map(duration), ["0.4 s", "59 s", "1 min", "1 h", "1 d"]);
});

test("a time of another day has its date", () => {
  const at = new Date(2026, 10, 27, 12, 3, 9);
  assert.equal(clock(at.getTime() / 1000, new Date(2026, 10, 27, 20)), "12:03:09");
  assert.equal(clock(at.getTime() / 1000, new Date(2026, 10, 28)), "2026-11-27 12:03:09");
});

test("workers are counted by state", () => {
  assert.equal(workers(["active", "paused", "active"]), "2 active, 1 paused");
  assert.equal(workers([]), "no workers");
  assert.equal(workers([], true), "in the driver");
});

test("an unknown state is neither good nor bad", () => {
  assert.deepEqual(["running", "lost", "drained", "rebooting", "new"].map(tone), ["good", "bad", "calm", "busy", "busy"]);
});

test("the author of a change names its run in Airflow", () => {
  assert.deepEqual(run("airflow:drain_host/manual__2026-01-01T00:00:00+00:00"), {
    dag: "drain_host",
    run: "manual__2026-01-01T00:00:00+00:00",
  });
  assert.equal(run("cli:anna"), null);
});
