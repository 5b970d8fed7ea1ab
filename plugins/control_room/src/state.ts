// The state of a pipeline as `/state` and `/events` send it; `sluice_airflow/page/content.py` makes it.

export type Worker = { slot: string; host: string; state: string };
export type Scaler = { mode: string; slots: number; wanted: number; reason: string };

export type Tier = {
  name: string;
  kind: string;
  mode: string;
  state: string;
  incarnation: number | null;
  release: string | null;
  driver: { host: string | null; state: string | null };
  workers: Worker[];
  next: number | null;
  standby: number | null;
  phase: string;
  sentence: string;
  error: string | null;
  rate_in: number | null;
  rate_out: number | null;
  lag: number | null;
  pressure: string | null;
  starved: string | null;
  held_for: string | null;
  admitted: number | null;
  metered: boolean;
  scaler: Scaler | null;
  hung: string | null;
  latency_ms: number | null;
  latency_p99_ms: number | null;
  gap_seconds: number | null;
  partitions: number | null;
  published: string | null;
  /** Whether the driver does the work itself, without workers. */
  light: boolean;
  inputs: string[];
  outputs: string[];
  /** By stream; empty while the tier's driver does not tell. */
  input_lags: Record<string, number>;
  input_rates: Record<string, number>;
  output_rates: Record<string, number>;
  /** Since the start of the tier's driver. */
  quarantined: number | null;
  drift: string | null;
};

export type Host = {
  name: string;
  zone: string;
  state: string;
  rack: string | null;
  labels: string[];
  cpu: number;
  memory: number;
  by: string;
  since: number | null;
  drivers: string[];
  quarantine: string | null;
  ending: string | null;
  busy_since: number | null;
  /** The part of a minute in which the processors are busy. */
  busy_part: number | null;
  reboot_needed: boolean;
};

export type Source = {
  name: string;
  stream: string;
  kind: string;
  /** running, stands still, or lost. */
  state: string;
  host: string;
  where: string;
  failures: { at: number; how: string }[];
  rate: number | null;
  records: number | null;
  last: number | null;
  waiting_bytes: number | null;
  throttled: number | null;
};

export type Slot = { id: string; host: string; tenant: string; incarnation: number; state: string };

export type Progress = {
  handed_over: number;
  moves: number;
  seconds: number;
  seconds_left: number;
  verdict: string;
  waits_for: string | null;
};

export type Doing = {
  change: string;
  what: string;
  step: string | null;
  by: string;
  since: number;
  sentence: string;
  progress: Progress | null;
};

export type Move = { tier: string; driver: string; workers: string[] };

export type Change = {
  id: string;
  what: string;
  by: string;
  state: string;
  started_at: number;
  predicted_seconds: number | null;
  seconds: number | null;
  predicted_gap_seconds: number | null;
  gap_seconds: number | null;
  abort_predicted_seconds: number | null;
  steps: Record<string, number>;
  all_steps: string[];
  moves: Move[];
};

export type Share = {
  tenant: string;
  minimum: number;
  target: number;
  maximum: number;
  slots: number;
  extra: number;
  where: string | null;
  layer: string;
  by: string;
  since: number | null;
  until: number | null;
  held: number;
  /** Whether it is a tier whose driver does the work, so that it has no slots. */
  light: boolean;
};

export type Layer = {
  tenant: string;
  layer: string;
  sets: string;
  owner: string;
  at: number;
  until: number | null;
};

export type Shift = { name: string; begins: number; shares: Record<string, string> };

export type BatchJob = {
  job: string;
  tenant: string;
  state: string;
  slots: number;
  wanted: number | null;
  since: number;
  reason: string;
};

export type Audit = {
  tier: string;
  once: number;
  again: number;
  complete: number | null;
  unseen: number;
  late: number;
  partial: string;
  verdict: string;
  lost: number;
};

export type Loss = { number: number; tier: string; place: string; records: number; sentence: string; found_at: number };
export type Hold = { tier: string; culprit: string; sentence: string; begun: number; ended: number | null };
export type Replay = { number: number; tier: string; rows_out: number; left: number; pace: number };
export type Series = Record<"rate_in" | "lag" | "latency_ms", (number | null)[]>;

export type Alert = {
  key: string;
  severity: "critical" | "warning";
  /** told, silenced, explained by KEY, waits, or ends. */
  state: string;
  since: number;
  happened: string;
  did: string;
  do: string;
  /** The page of what the alert is about, such as `hosts/h1`; empty: none. */
  page: string;
};

export type Alerts = {
  alerts: Alert[];
  ended: { kind: string; subject: string; since: number; gone_at: number | null; happened: string }[];
  silences: { key: string; until: number; by: string }[];
  channels: Record<string, { failed_since: number | null; error: string }>;
};

export type State = {
  at: number;
  stale: { since: number; sentence: string } | null;
  controller: { leader: string; sentence: string; at: number } | null;
  doing: Doing[];
  hosts: Host[];
  tiers: Tier[];
  sources: Source[];
  slots: Slot[];
  shares: Share[];
  /** What each layer above the site file sets, also where a higher layer wins. */
  layers: Layer[];
  batch_jobs: BatchJob[];
  changes: Change[];
  /** Whether there are changes before those in `changes`. */
  older_changes: boolean;
  holds: Hold[];
  audit: Audit[];
  losses: Loss[];
  replays: Replay[];
  alerts: Alerts;
  notes: string[];
  /** Why there are no figures: no rates, no audit, no losses; null: there are. */
  figures_missing: string | null;
  shifts: Shift[];
  /** `streams` has the rates by `STREAM TIER` as the tier reads it, and by `STREAM` as it is written. */
  last_hour: { times: number[]; tiers: Record<string, Series>; streams: Record<string, (number | null)[]> };
};

export type Patch = Partial<State>;

/** Whether the parts that have come so far are a whole state. */
export function isWhole(patch: Patch): patch is State {
  return patch.at !== undefined && patch.tiers !== undefined;
}
