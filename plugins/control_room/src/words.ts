// Numbers and times in words for people. Pure.

const DASH = "–";

/** `1,234`, or a dash for no number. */
export function count(value: number | null | undefined): string {
  return value == null ? DASH : Math.round(value).toLocaleString("en");
}

/** Records per second: `0.5/s`, `412/s`. */
export function rate(value: number | null | undefined): string {
  if (value == null) return DASH;
  return `${value > 0 && value < 10 ? value.toFixed(1) : count(value)}/s`;
}

/** `85 ms` or `1.2 s`. */
export function latency(milliseconds: number | null | undefined): string {
  if (milliseconds == null) return DASH;
  return milliseconds < 1000 ? `${Math.round(milliseconds)} ms` : `${(milliseconds / 1000).toFixed(1)} s`;
}

/** `0.4 s`, `12 s`, `3 min`, `2 h`, `5 d`. */
export function duration(seconds: number | null | undefined): string {
  if (seconds == null) return DASH;
  if (seconds < 10) return `${Math.max(0, seconds).toFixed(1)} s`;
  if (seconds < 60) return `${Math.round(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86_400)} d`;
}

/** A time of the browser's clock; with the date if it is not today's. */
export function clock(at: number | null | undefined, today = new Date()): string {
  if (!at) return DASH;
  const time = new Date(at * 1000);
  const words = time.toLocaleTimeString("en-GB");
  return time.toDateString() === today.toDateString() ? words : `${time.toLocaleDateString("en-CA")} ${words}`;
}

/** The first letter as a capital one. */
export function capital(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** How many workers are in which state: `2 active, 1 paused`; a light tier has none. */
export function workers(states: string[], light = false): string {
  if (light) return "in the driver";
  const counts = new Map<string, number>();
  for (const state of states) counts.set(state, (counts.get(state) ?? 0) + 1);
  return [...counts].map(([state, number]) => `${number} ${state}`).join(", ") || "no workers";
}

/** The tone of a state: how the page colours it. */
export function tone(state: string): "good" | "busy" | "bad" | "calm" {
  if (["running", "up", "done", "active", "success", "balanced"].includes(state)) return "good";
  if (["failed", "lost", "aborted", "upstream_failed", "LOST", "critical"].includes(state)) return "bad";
  if (["paused", "drained", "stopped", "skipped", "to come"].includes(state)) return "calm";
  return "busy";
}

/** The Airflow run that asked for a change, from `airflow:DAG/RUN`; null for other users. */
export function run(by: string): { dag: string; run: string } | null {
  const found = /^airflow:([^/]+)\/(.+)$/.exec(by);
  return found?.[1] && found[2] ? { dag: found[1], run: found[2] } : null;
}
