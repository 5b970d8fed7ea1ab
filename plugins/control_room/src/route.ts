// Addresses inside the page: the view, and the host, tier, change or log that it shows. Pure.

const BASE = "/plugin/sluice";
export const TABS = ["flow", "hosts", "changes", "alerts", "shares", "truth"] as const;
export type Tab = (typeof TABS)[number];
const DETAILS = { hosts: "hosts", tiers: "flow", changes: "changes", logs: "flow" } as const;
export type Detail = keyof typeof DETAILS;
export type Route = { tab: Tab; detail: { of: Detail; name: string } | null };

/** The route of a path of Airflow's router; Flow for a path that is none of the page's. */
export function route(pathname: string): Route {
  const [first = "", ...rest] = pathname.replace(BASE, "").split("/").filter(Boolean).map(decoded);
  if (rest.length > 0 && first in DETAILS) {
    const of = first as Detail;
    return { tab: DETAILS[of], detail: { of, name: rest.join("/") } };
  }
  return { tab: TABS.find((tab) => tab === first) ?? "flow", detail: null };
}

/** The path of a view, or of one host, tier, change or log. */
export function path(of: Tab | Detail, name = "", connection: string | null = null): string {
  const parts = [of, ...name.split("/").filter(Boolean)].map(encodeURIComponent);
  const query = connection === null ? "" : `?connection=${encodeURIComponent(connection)}`;
  return `${BASE}/${parts.join("/")}${query}`;
}

/** The connection and the tier of a DAG: `shop_tier_entry` is of the connection `shop` and the tier `entry`. */
export function ofDag(dag: string, connections: string[]): { connection: string | null; tier: string | null } {
  const known = connections.filter((id) => dag.startsWith(`${id}_`)).sort((one, other) => other.length - one.length);
  const connection = dag.startsWith("tier_") ? null : known[0] ?? null;
  const name = connection === null ? dag : dag.slice(connection.length + 1);
  return { connection, tier: name.startsWith("tier_") ? name.slice("tier_".length) : null };
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part; // a person wrote the address
  }
}
