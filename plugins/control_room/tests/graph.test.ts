import assert from "node:assert/strict";
import { test } from "node:test";
import { boxes, graph, spark } from "../src/graph.ts";

const tier = (name: string, inputs: string[], outputs: string[] = []) => ({ name, inputs, outputs });
const HITS = [
  tier("entry", ["raw"], ["hits"]),
  tier("enrich", ["hits"], ["enriched"]),
  tier("counts", ["enriched"]),
  tier("outbound", ["enriched"], ["delivered"]),
];
const SIZES = { width: 100, height: 50, gap: 20, row: 10, margin: 5 };

test("each tier is one column behind the tiers that it reads", () => {
  assert.deepEqual(graph(HITS).columns, [["entry"], ["enrich"], ["counts", "outbound"]]);
});

test("streams from outside and streams without a reader have one end", () => {
  const { edges } = graph(HITS);
  assert.deepEqual(edges[0], { stream: "raw", from: null, to: "entry" });
  assert.deepEqual(edges.at(-1), { stream: "delivered", from: "outbound", to: null });
  assert.equal(edges.length, 5);
});

test("a tier that reads two depths stands behind the deeper one", () => {
  const { columns } = graph([...HITS, tier("late", ["raw", "enriched"])]);
  assert.deepEqual(columns[2], ["counts", "outbound", "late"]);
});

test("a stream that leads back ends, and every tier has a place", () => {
  const looped = [tier("entry", ["raw", "again"], ["hits"]), tier("check", ["hits"], ["again", "good"])];
  assert.deepEqual(graph(looped).columns.flat().sort(), ["check", "entry"]);
  assert.deepEqual(graph([tier("self", ["own"], ["own"])]).columns, [["self"]]);
});

test("boxes do not overlap, for any number of tiers", () => {
  for (let size = 1; size < 9; size += 1) {
    const tiers = Array.from({ length: size }, (_, number) => tier(`t${number}`, [`s${number % 3}`], [`s${number + 1}`]));
    const placed = boxes(graph(tiers).columns, SIZES);
    const all = [...placed.of.values()];
    assert.equal(all.length, size);
    for (const [number, one] of all.entries()) {
      assert.ok(one.x >= 0 && one.y >= 0 && one.x + one.width <= placed.width && one.y + one.height <= placed.height);
      for (const other of all.slice(number + 1)) {
        assert.ok(Math.abs(one.x - other.x) >= one.width || Math.abs(one.y - other.y) >= one.height);
      }
    }
  }
});

test("a sparkline has a gap where there is no figure", () => {
  assert.equal(spark([0, 2, null, 1], 30, 10), "M0.0,10.0L10.0,0.0M30.0,5.0");
  assert.equal(spark([], 30, 10), "");
  assert.equal(spark([null, null], 30, 10), "");
});
