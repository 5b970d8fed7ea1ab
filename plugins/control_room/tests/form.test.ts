import assert from "node:assert/strict";
import { test } from "node:test";
import { type Action, conf, optional, parts, plan, title, verb } from "../src/form.ts";

const SCALE: Action = {
  kind: "scale",
  dag_id: "scale_tier",
  summary: "",
  fields: [
    { name: "tier", type: "string", enum: ["entry", "batch"] },
    { name: "k", type: ["string", "integer"] },
    { name: "partitions", type: "integer" },
    { name: "until", type: "string", default: "" },
  ],
};

test("an empty field is left to the runbook, and a number is sent as one", () => {
  const values = { tier: "entry", k: "50%", partitions: "8", until: "" };
  assert.deepEqual(conf(SCALE, values), { tier: "entry", k: "50%", partitions: 8 });
});

test("a number that may be left out is sent as a number, too", () => {
  const burst = { ...SCALE, fields: [{ name: "k", type: ["null", "integer"], default: null }] };
  assert.deepEqual(conf(burst, { k: "2" }), { k: 2 });
  assert.deepEqual(conf(burst, { k: "" }), {});
});

test("values of no field are not sent", () => {
  assert.deepEqual(conf(SCALE, { tier: "entry", dry_run: "false" }), { tier: "entry" });
});

test("only a field with a default, or that may be null, is optional", () => {
  assert.deepEqual(SCALE.fields.map(optional), [false, false, false, true]);
  assert.ok(optional({ name: "tier", type: ["null", "string"] }));
});

test("a title names what is done to what", () => {
  assert.equal(title(SCALE, { tier: "enrich" }), "Scale enrich");
  const drain = { ...SCALE, kind: "drain", fields: [{ name: "host", type: "string" }] };
  assert.equal(title(drain, { host: "h1" }), "Drain h1");
  assert.equal(title({ ...SCALE, kind: "pause" }, {}), "Pause all tiers");
  assert.equal(title({ ...drain, kind: "write-off" }, { host: "h2" }), "Write off h2");
  assert.equal(title({ ...SCALE, kind: "leave" }, { tier: "enrich" }), "Leave EC2 with enrich");
  assert.equal(title({ ...SCALE, kind: "leave" }, {}), "Leave EC2");
});

test("a button has the whole verb", () => {
  assert.equal(verb({ ...SCALE, kind: "write-off" }), "Write off");
  assert.equal(verb(SCALE), "Scale");
});

test("a plan is shown move by move", () => {
  const sentence = "would do: counts → driver on h2, workers on h2; about 40 s, with a gap of about 0.3 s";
  assert.deepEqual(parts({ sentence }), [
    "counts → driver on h2, workers on h2",
    "about 40 s, with a gap of about 0.3 s",
  ]);
});

test("the plan of a burst begins with its instances, their cost, and whether they come in time", () => {
  const burst = { sentence: "would do: enrich → h2", instances: 2, instance_types: ["c7.large"], cost_per_hour: 0.2 };
  assert.deepEqual(parts({ ...burst, break_even: { sentence: "ready in about 40 s" } }), [
    "launches 2 of c7.large, for at most 0.2 an hour",
    "ready in about 40 s",
    "enrich → h2",
  ]);
  assert.equal(parts({ ...burst, cost_per_hour: null })[0], "launches 2 of c7.large");
  assert.equal(parts({ ...burst, instances: 0 })[0], "launches no instance");
});

test("a plan is read from a value and from its text", () => {
  const left = { sentence: "would do: nothing" };
  assert.deepEqual(plan(left), left);
  assert.deepEqual(plan(JSON.stringify(left)), left);
});
