import assert from "node:assert/strict";
import { test } from "node:test";
import { ofDag, path, route, TABS } from "../src/route.ts";

test("each view has an address of its own", () => {
  for (const tab of TABS) assert.deepEqual(route(path(tab)), { tab, detail: null });
  assert.deepEqual(route("/plugin/sluice"), { tab: "flow", detail: null });
  assert.deepEqual(route("/plugin/sluice/nothing/"), { tab: "flow", detail: null });
});

test("names with any characters come back from their address", () => {
  const change = "drain_host.manual__2026-11-29T04:00:00+00:00";
  assert.deepEqual(route(path("changes", change)), { tab: "changes", detail: { of: "changes", name: change } });
  assert.ok(!path("changes", change).includes("+"));
  assert.deepEqual(route("/plugin/sluice/hosts/100%"), { tab: "hosts", detail: { of: "hosts", name: "100%" } });
});

test("the name of a log has parts", () => {
  const name = "h2/slot-counts-3-0/executor";
  assert.equal(path("logs", name), "/plugin/sluice/logs/h2/slot-counts-3-0/executor");
  assert.deepEqual(route(path("logs", name)).detail, { of: "logs", name });
});

test("an address names the pipeline if it is not this machine's", () => {
  assert.equal(path("tiers", "entry", "shop"), "/plugin/sluice/tiers/entry?connection=shop");
});

test("a DAG names its pipeline and its tier", () => {
  const ids = ["shop", "shop_eu"];
  assert.deepEqual(ofDag("tier_entry", ids), { connection: null, tier: "entry" });
  assert.deepEqual(ofDag("shop_eu_tier_entry", ids), { connection: "shop_eu", tier: "entry" });
  assert.deepEqual(ofDag("shop_drain_host", ids), { connection: "shop", tier: null });
  assert.deepEqual(ofDag("drain_host", ids), { connection: null, tier: null });
  assert.deepEqual(ofDag("tier_entry", ["tier"]), { connection: null, tier: "entry" });
});
