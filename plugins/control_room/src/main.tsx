// The page Sluice: Airflow loads this component into its own page.
import { type KeyboardEvent, type ReactNode, useEffect, useMemo, useRef, useState } from "react";
import { Dialog } from "./act.tsx";
import { Alerts, firing } from "./alerts.tsx";
import { changeOf, Changes, Running } from "./changes.tsx";
import { ChangesOf, One } from "./detail.tsx";
import { Flow } from "./flow.tsx";
import type { Action, Values } from "./form.ts";
import { Hosts } from "./hosts.tsx";
import { address, follow, type Link, readAhead, recent } from "./live.ts";
import { ActingContext, ConnectionContext, Pill, Sentence, To } from "./parts.tsx";
import { ofDag, path, route, type Tab, TABS } from "./route.ts";
import { Link as RouterLink, useLocation, useNavigate } from "./router.ts";
import { Shares } from "./shares.tsx";
import { isWhole, type Patch, type State } from "./state.ts";
import style from "./style.css";
import { Truth } from "./truth.tsx";
import { capital, clock, run } from "./words.ts";

const VIEWS = { flow: Flow, hosts: Hosts, changes: Changes, alerts: Alerts, shares: Shares, truth: Truth };
const ACTIONS_MILLISECONDS = 60_000;
const TILE_ALERTS = 3;

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

/** Whether a key has changed the view. Its tab then gets the focus, which Airflow's router drops. */
let focusTab = false;

function Tabs({ tab, change, state }: { tab: Tab; change: (tab: Tab) => void; state: State }) {
  const marks: Partial<Record<Tab, number>> = {
    alerts: firing(state).length,
    hosts: state.hosts.filter((host) => host.state === "lost" || host.quarantine).length,
    changes: state.doing.length,
    truth: state.losses.length,
  };
  const onKeyDown = (event: KeyboardEvent<HTMLDivElement>) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step === undefined) return;
    const next = TABS[(TABS.indexOf(tab) + step + TABS.length) % TABS.length]!;
    focusTab = true;
    change(next);
  };
  const list = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (focusTab) list.current!.querySelector<HTMLElement>("[aria-selected=true]")?.focus();
    focusTab = false;
  }, [tab]);
  return (
    <div ref={list} role="tablist" aria-label="views" onKeyDown={onKeyDown}>
      {TABS.map((name) => (
        <button
          key={name}
          id={`sluice-tab-${name}`}
          type="button"
          role="tab"
          aria-selected={name === tab}
          aria-controls="sluice-view"
          tabIndex={name === tab ? 0 : -1}
          onClick={() => change(name)}
        >
          {capital(name)}{marks[name] ? <b className="mark">{marks[name]}</b> : null}
        </button>
      ))}
    </div>
  );
}

/** Follow the state of a pipeline. */
function usePipeline(connection: string | null): { state: Patch; link: Link } {
  const [state, setState] = useState(() => recent(connection));
  const [link, setLink] = useState<Link>({ mode: "connecting" });
  useEffect(() => {
    setState(recent(connection));
    return follow(connection, (patch) => setState((now) => ({ ...now, ...patch })), setLink);
  }, [connection]);
  return { state, link };
}

type Room = { connection: string | null; head?: ReactNode; children: (state: State) => ReactNode };

/** The frame: it follows one pipeline, says if the state is stale, and has the dialog of the actions. */
function Frame({ connection, head, children }: Room) {
  const { state, link } = usePipeline(connection);
  const [chosen, setChosen] = useState<{ action: Action; values: Values } | null>(null);
  const actions = useList<Action>("sluice/actions", connection, ACTIONS_MILLISECONDS);
  const acting = useMemo(
    () => ({ actions, act: (action: Action, values: Values) => setChosen({ action, values }) }),
    [actions],
  );
  const wrong = trouble(link, state);
  return (
    <ConnectionContext value={connection}>
      <ActingContext value={acting}>
        <div className="sluice">
          <style>{style}</style>
          <header className="top">
            <h1>Sluice</h1>
            {head}
            <Badge link={link} state={state} />
            {state.controller && <p className="soft clip" title={state.controller.sentence}>Controller {state.controller.leader}: <Sentence text={state.controller.sentence} /></p>}
            {state.tiers && !state.controller && <p className="warn">No controller has reported yet, so no tier is started or changed.</p>}
          </header>
          {wrong && <p role="alert" className="notes">{wrong}</p>}
          {isWhole(state) ? children(state) : !wrong && <p className="none" role="status">Reading the state of the pipeline…</p>}
          {chosen && <Dialog action={chosen.action} preset={chosen.values} state={state} close={() => setChosen(null)} />}
        </div>
      </ActingContext>
    </ConnectionContext>
  );
}

/** The page in Airflow's menu. */
function ControlRoom() {
  const { pathname, search } = useLocation();
  const navigate = useNavigate();
  const connection = new URLSearchParams(search).get("connection");
  const connections = useList<string>("sluice/connections", null, ACTIONS_MILLISECONDS);
  const { tab, detail } = route(pathname);
  const Shown = VIEWS[tab];
  const choice = connections.length > 0 && (
    <select
      aria-label="pipeline"
      value={connection ?? ""}
      onChange={(event) => navigate(path(tab, "", event.target.value || null))}
    >
      <option value="">this machine's pipeline</option>
      {connections.map((id) => <option key={id}>{id}</option>)}
    </select>
  );
  return (
    <Frame connection={connection} head={choice}>
      {(state) => (
        <>
          {state.notes.length > 0 && (
            <ul className="notes" aria-label="problems" tabIndex={0}>
              {state.notes.map((note) => <li key={note}><Sentence text={note} /></li>)}
            </ul>
          )}
          {tab !== "changes" && state.doing.map((doing) => (
            <Running key={`${doing.change} ${doing.step}`} doing={doing} change={changeOf(doing, state)} />
          ))}
          <Tabs tab={tab} state={state} change={(next) => navigate(path(next, "", connection))} />
          <div id="sluice-view" role="tabpanel" aria-labelledby={`sluice-tab-${tab}`}>
            {detail ? <One of={detail.of} name={detail.name} state={state} /> : <Shown state={state} />}
          </div>
        </>
      )}
    </Frame>
  );
}

/** The tab of a DAG. Airflow shows it for all DAGs, also for those that are not of Sluice. */
function OfDag({ dagId }: { dagId: string }) {
  const connections = useList<string>("sluice/connections", null, ACTIONS_MILLISECONDS);
  const { connection, tier } = ofDag(dagId, connections);
  return (
    <Frame connection={connection}>
      {(state) => {
        if (tier !== null && state.tiers.some((each) => each.name === tier)) return <One of="tiers" name={tier} state={state} />;
        const changes = state.changes.filter((change) => run(change.by)?.dag === dagId);
        const doing = state.doing.filter((each) => run(each.by)?.dag === dagId);
        return (
          <>
            {doing.map((each) => <Running key={`${each.change} ${each.step}`} doing={each} change={changeOf(each, state)} />)}
            <ChangesOf changes={changes} of={dagId} />
            <p><To of="flow">The whole pipeline</To></p>
          </>
        );
      }}
    </Frame>
  );
}

/** What Airflow mounts: the page of its menu, or the tab of a DAG. */
function Sluice({ dagId }: { dagId?: string }) {
  return dagId === undefined ? <ControlRoom /> : <OfDag dagId={dagId} />;
}

/** The tile on Airflow's home: nothing for users who may not see the page. */
function Overview() {
  const { state, link } = usePipeline(null);
  const connections = useList<string>("sluice/connections", null, ACTIONS_MILLISECONDS);
  if (link.mode === "refused") return null;
  const wrong = trouble(link, state);
  const alerts = isWhole(state) ? firing(state) : [];
  const critical = alerts.filter((alert) => alert.severity === "critical").length;
  return (
    <ConnectionContext value={null}>
      <section className="sluice tile" aria-label="Sluice">
        <style>{style}</style>
        <header>
          <h2><To of="flow">Sluice</To></h2>
          <Badge link={link} state={state} />
          {isWhole(state) && (
            <>
              <span><To of="flow">tiers</To> {some(state.tiers, "running")}</span>
              <span><To of="hosts">hosts</To> {some(state.hosts, "up")}</span>
              <span className={critical > 0 ? "warn" : undefined}>
                <To of="alerts">alerts</To> {alerts.length}{critical > 0 && `, ${critical} critical`}
              </span>
            </>
          )}
        </header>
        {!isWhole(state) && connections.map((id) => <p key={id}><RouterLink to={path("flow", "", id)}>{id}</RouterLink></p>)}
        {wrong && (isWhole(state) || connections.length === 0) && <p className="warn">{wrong}</p>}
        {isWhole(state) && state.doing.map((doing) => (
          <p key={`${doing.change} ${doing.step}`}>{doing.what}{doing.step && ` · ${doing.step}`}: <Sentence text={doing.sentence} /></p>
        ))}
        {alerts.slice(0, TILE_ALERTS).map((alert) => (
          <p key={alert.key}><Pill state={alert.severity} /> <Sentence text={alert.happened} /></p>
        ))}
      </section>
    </ConnectionContext>
  );
}

function some(things: { state: string }[], state: string): string {
  return `${things.filter((thing) => thing.state === state).length} of ${things.length} ${state}`;
}

// React shows a component up to 300 ms after its script has come: time enough to read the state
void readAhead(new URLSearchParams(location.search).get("connection"));
Object.assign(globalThis, { Sluice, "Sluice overview": Overview });
