// What the page says of a host's load, and what it warns of. Pure.
import type { Audit, Host, Tier } from "./state.ts";
import { clock } from "./words.ts";

/** How busy the host's processors are: `40 % busy`; empty while its agent has not measured it. */
export function load(host: Host): string {
  return host.busy_part === null ? "" : `${Math.round(host.busy_part * 100)} % busy`;
}

/** What is wrong with the host, and the drift of each tier with a driver or worker there. */
export function warnings(host: Host, tiers: Tier[]): string[] {
  const drifted = tiers.filter((tier) => tier.drift && [tier.driver, ...tier.workers].some((unit) => unit.host === host.name));
  return [
    host.quarantine ?? "",
    host.ending ?? "",
    host.busy_since === null ? "" : `no processor time left since ${clock(host.busy_since)}`,
    host.reboot_needed ? "an update needs a reboot" : "",
    ...drifted.map((tier) => `${tier.name} ${tier.drift}`),
  ].filter(Boolean);
}

const HOUR_SECONDS = 3600;
/** An hour that is not complete this long after its end is late: the runbook `hour_complete` then fails. */
const LATE_SECONDS = 3000;

/** What answers the audit's line on a tier: a replay of lost records, or a look at the hour that is late. */
export function answer(line: Audit, now: number): "replay" | "hour" | null {
  if (line.lost || line.verdict === "LOST") return "replay";
  const due = Math.floor((now - LATE_SECONDS) / HOUR_SECONDS) * HOUR_SECONDS;
  return line.complete !== null && line.complete < due ? "hour" : null;
}
