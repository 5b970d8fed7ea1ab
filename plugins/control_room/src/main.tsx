// The page Sluice: Airflow loads this component into its own page.
import { type KeyboardEvent, useEffect, useMemo, useState } from "react";
import { Dialog } from "./act.tsx";
import { Changes, Running } from "./changes.tsx";
import { Flow } from "./flow.tsx";
import type { Action, Values } from "./form.ts";
import { Hosts } from "./hosts.tsx";
import { address, follow, type Link } from "./live.ts";
import { ActingContext, ConnectionContext, Sentence } from "./parts.tsx";
import { Shares } from "./shares.tsx";
import { isWhole, type Patch, type State } from "./state.ts";
import style from "./style.css";
import { Truth } from "./truth.tsx";
import { capital, clock } from "./words.ts";

const VIEWS = { flow: Flow, hosts: Hosts, changes: Changes, shares: Shares, truth: Truth };
type View = keyof typeof VIEWS;
const NAMES = Object.keys(VIEWS) as View[];
const ACTIONS_MILLISECONDS = 60_000;

/** Keep the choice in the address, so that a link opens the same view. */
function choose(name: string, value: string | null): void {
  const url = new URL(location.href);
  if (value === null) url.searchParams.delete(name);
  else url.searchParams.set(name, value);
  history.replaceState(history.state, "", url);
}

function asked(name: string): string | null {
  return new URL(location.href).searchParams.get(name);
}

function useList<Item>(path: string, connection: string | null, again: number): Item[] {
  const [items, setItems] = useState<Item[]>([]);
  useEffect(() => {
    let ended = false;
    const read = async () => {
      const answer = await fetch(address(path, { connection })).catch(() => null);
      if (answer?.ok && !ended) setItems((await answer.json()) as Item[]);
    };
    void read();
    const timer = setInterval(() => void read(), again);
    return () => {
      ended = true;
      clearInterval(timer);
    };
  }, [path, connection, again]);
  return items;
}

/** What is wrong with the connection to the state, as a sentence; null if nothing. */
function trouble(link: Link, state: Patch): string | null {
  if (link.mode === "refused") return link.sentence;
  if (link.mode === "away") return `Airflow's API server has not answered since ${clock(link.since)}. The page tries again.`;
  if (!state.stale) return null;
  const then = state.at === undefined ? "" : ` Shown is the state of ${clock(state.at)}.`;
  return `The state of the pipeline cannot be read since ${clock(state.stale.since)}: ${state.stale.sentence}.${then}`;
}

function Badge({ link, state }: { link: Link; state: Patch }) {
  if (trouble(link, state)) return <span className="pill bad">stale</span>;
  if (link.mode === "connecting") return <span className="pill calm">connecting</span>;
  return <span className="pill good">{link.mode}</span>;
}

function Tabs({ view, change, state }: { view: View; change: (view: View) => void; state: State }) {
  const marks: Partial<Record<View, number>> = {
    hosts: state.hosts.filter((host) => host.state === "lost" || host.quarantine).length,
    changes: state.doing.length,
    truth: state.losses.length,
  };
  const onKeyDown = (event: KeyboardEvent<HTMLDivElement>) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step === undefined) return;
    const next = NAMES[(NAMES.indexOf(view) + step + NAMES.length) % NAMES.length]!;
    change(next);
    event.currentTarget.querySelector<HTMLElement>(`#sluice-tab-${next}`)?.focus();
  };
  return (
    <div role="tablist" aria-label="views" onKeyDown={onKeyDown}>
      {NAMES.map((name) => (
        <button
          key={name}
          id={`sluice-tab-${name}`}
          type="button"
          role="tab"
          aria-selected={name === view}
          aria-controls="sluice-view"
          tabIndex={name === view ? 0 : -1}
          onClick={() => change(name)}
        >
          {capital(name)}{marks[name] ? <b className="mark">{marks[name]}</b> : null}
        </button>
      ))}
    </div>
  );
}

function ControlRoom() {
  const [connection, setConnection] = useState(() => asked("connection"));
  const [state, setState] = useState<Patch>({});
  const [link, setLink] = useState<Link>({ mode: "connecting" });
  const [view, setView] = useState<View>(() => NAMES.find((name) => name === asked("view")) ?? "flow");
  const [chosen, setChosen] = useState<{ action: Action; values: Values } | null>(null);
  const actions = useList<Action>("sluice/actions", connection, ACTIONS_MILLISECONDS);
  const connections = useList<string>("sluice/connections", null, ACTIONS_MILLISECONDS);
  useEffect(() => {
    setState({});
    return follow(connection, (patch) => setState((now) => ({ ...now, ...patch })), setLink);
  }, [connection]);
  const acting = useMemo(
    () => ({ actions, act: (action: Action, values: Values) => setChosen({ action, values }) }),
    [actions],
  );
  const Shown = VIEWS[view];
  const wrong = trouble(link, state);
  return (
    <ConnectionContext value={connection}>
      <ActingContext value={acting}>
        <div className="sluice">
          <style>{style}</style>
          <header className="top">
            <h1>Sluice</h1>
            {connections.length > 0 && (
              <select
                aria-label="pipeline"
                value={connection ?? ""}
                onChange={(event) => {
                  const id = event.target.value || null;
                  choose("connection", id);
                  setConnection(id);
                }}
              >
                <option value="">this machine's pipeline</option>
                {connections.map((id) => <option key={id}>{id}</option>)}
              </select>
            )}
            <Badge link={link} state={state} />
            {state.controller && <p className="soft">Controller {state.controller.leader}: {state.controller.sentence}</p>}
            {state.tiers && !state.controller && <p className="warn">No controller has reported yet, so no tier is started or changed.</p>}
          </header>
          {wrong && <p role="alert" className="notes">{wrong}</p>}
          {isWhole(state) ? (
            <>
              {state.notes.length > 0 && (
                <ul className="notes" aria-label="problems" tabIndex={0}>
                  {state.notes.map((note) => <li key={note}><Sentence text={note} /></li>)}
                </ul>
              )}
              {view !== "changes" && state.doing.map((doing) => (
                <Running key={`${doing.change} ${doing.step}`} doing={doing} state={state} />
              ))}
              <Tabs
                view={view}
                state={state}
                change={(next) => {
                  choose("view", next);
                  setView(next);
                }}
              />
              <div id="sluice-view" role="tabpanel" aria-labelledby={`sluice-tab-${view}`}>
                <Shown state={state} />
              </div>
            </>
          ) : (
            !wrong && <p className="none" role="status">Reading the state of the pipeline…</p>
          )}
          {chosen && <Dialog action={chosen.action} preset={chosen.values} close={() => setChosen(null)} />}
        </div>
      </ActingContext>
    </ConnectionContext>
  );
}

Object.assign(globalThis, { Sluice: ControlRoom });
