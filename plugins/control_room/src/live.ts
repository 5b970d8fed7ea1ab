// Follows the state: by server-sent events, and by a poll where none come.
import type { Patch } from "./state.ts";

export type Link =
  | { mode: "connecting" }
  | { mode: "live" | "polling" }
  | { mode: "refused"; sentence: string }
  | { mode: "away"; since: number };

const LOOK_MILLISECONDS = 2500;
const SILENT_MILLISECONDS = 6000;
const REOPEN_MILLISECONDS = 15_000;
const RECENT_MILLISECONDS = 10_000;

/** The last state of each pipeline, and when it came. */
const last = new Map<string | null, { state: Patch; came: number }>();

/** Airflow's own addresses, also below a path of a proxy. */
export function address(path: string, query: Record<string, string | null> = {}): string {
  const url = new URL(path, document.baseURI);
  for (const [name, value] of Object.entries(query)) if (value !== null) url.searchParams.set(name, value);
  return url.href;
}

/** The sentence of an answer that is an error. */
export async function refusal(answer: Response): Promise<string> {
  if (answer.status === 401) return "Your session has ended: sign in to Airflow again.";
  if (answer.status === 403) return "Airflow's roles do not let you do this.";
  const body: unknown = await answer.json().catch(() => null);
  const detail = (body as { detail?: unknown } | null)?.detail;
  return typeof detail === "string" ? detail : `Airflow answers ${answer.status}. ${detail ? JSON.stringify(detail) : ""}`;
}

/** Ask something of the page's own server; return why it was refused, or null. */
export async function ask(path: string, connection: string | null, body: unknown): Promise<string | null> {
  const answer = await fetch(address(`sluice/${path}`, { connection }), {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  }).catch(() => null);
  if (answer === null) return "Airflow's API server does not answer. Try again.";
  return answer.ok ? null : refusal(answer);
}

function keep(connection: string | null, patch: Patch) {
  last.set(connection, { state: { ...last.get(connection)?.state, ...patch }, came: Date.now() });
}

/** The state of the last seconds, with which a view begins; empty if there is none. */
export function recent(connection: string | null): Patch {
  const kept = last.get(connection);
  return kept !== undefined && Date.now() - kept.came < RECENT_MILLISECONDS ? kept.state : {};
}

/** Read the state before a view asks for it. */
export async function readAhead(connection: string | null) {
  const answer = await fetch(address("sluice/state", { connection })).catch(() => null);
  if (answer?.ok) keep(connection, (await answer.json()) as Patch);
}

/** Call `onPatch` with each change of the state; return a function that ends it. */
export function follow(
  connection: string | null,
  onPatch: (patch: Patch) => void,
  onLink: (link: Link) => void,
): () => void {
  let source: EventSource | null = null;
  let heard = 0;
  let opened = 0;
  let answered = Date.now();
  let ended = false;
  let polling = false;

  const take = (patch: Patch) => {
    keep(connection, patch);
    onPatch(patch);
  };
  const open = () => {
    source?.close();
    opened = Date.now();
    source = new EventSource(address("sluice/events", { connection }));
    source.onmessage = (event: MessageEvent<string>) => {
      heard = answered = Date.now();
      take(JSON.parse(event.data) as Patch);
      onLink({ mode: "live" });
    };
  };
  const poll = async () => {
    if (polling) return; // an API server that is slow gets no second request meanwhile
    polling = true;
    try {
      const answer = await fetch(address("sluice/state", { connection }));
      if (ended) return;
      answered = Date.now();
      if (answer.ok || answer.status === 503) {
        take((await answer.json()) as Patch);
        onLink({ mode: "polling" });
      } else onLink({ mode: "refused", sentence: await refusal(answer) });
    } catch {
      if (!ended) onLink({ mode: "away", since: answered / 1000 });
    } finally {
      polling = false;
    }
  };
  // a hidden tab holds no stream: browsers open six connections to one server at most
  const look = () => {
    if (document.hidden) {
      source?.close();
      source = null;
    } else {
      const broken = source === null || source.readyState === EventSource.CLOSED;
      if (source === null || (broken && Date.now() - opened > REOPEN_MILLISECONDS)) open();
      if (Date.now() - Math.max(heard, opened) > SILENT_MILLISECONDS || broken) void poll();
    }
  };
  look();
  const timer = setInterval(look, LOOK_MILLISECONDS);
  document.addEventListener("visibilitychange", look);
  return () => {
    ended = true;
    clearInterval(timer);
    document.removeEventListener("visibilitychange", look);
    source?.close();
  };
}
