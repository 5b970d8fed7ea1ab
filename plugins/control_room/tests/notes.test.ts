import assert from "node:assert/strict";
import { test } from "node:test";
import { answer, load, warnings } from "../src/notes.ts";
import type { Audit, Host, Tier } from "../src/state.ts";

const h1 = { name: "h1", quarantine: null, ending: null, busy_since: null, busy_part: 0.3, reboot_needed: false } as Host;

function tier(name: string, driver: string | null, worker: string, drift: string | null): Tier {
  return { name, driver: { host: driver, state: null }, workers: [{ slot: "s", host: worker, state: "active" }], drift } as Tier;
}

test("the load of a host is a figure, or nothing before its first measurement", () => {
  assert.equal(load(h1), "30 % busy");
  assert.equal(load({ ...h1, busy_part: null }), "");
});

test("a host tells the drift of the tiers that have a driver or a worker there", () => {
  const tiers = [
    tier("driver-here", "h1", "h2", "breaks a rule"),
    tier("worker-here", "h2", "h1", "is off its place"),
    tier("elsewhere", "h2", "h2", "breaks a rule"),
    tier("in-order", "h1", "h1", null),
  ];
  assert.deepEqual(warnings(h1, tiers), ["driver-here breaks a rule", "worker-here is off its place"]);
});

test("a host tells that it needs a reboot, and why it is in quarantine", () => {
  assert.deepEqual(warnings(h1, []), []);
  assert.deepEqual(warnings({ ...h1, quarantine: "quarantined", reboot_needed: true }, []), ["quarantined", "an update needs a reboot"]);
});

const line = { tier: "counts", verdict: "balanced", lost: 0, complete: null } as Audit;

test("an hour is late if it is not complete 50 minutes after its end", () => {
  const end = 10 * 3600;
  assert.equal(answer({ ...line, complete: end - 1 }, end + 2999), null);
  assert.equal(answer({ ...line, complete: end - 1 }, end + 3000), "hour");
  assert.equal(answer({ ...line, complete: end }, end + 3000), null);
  assert.equal(answer(line, end + 3000), null, "it is not known up to when the tier is complete");
});

test("lost records are answered before a late hour", () => {
  assert.equal(answer({ ...line, lost: 2, complete: 1 }, 36_000), "replay");
});
