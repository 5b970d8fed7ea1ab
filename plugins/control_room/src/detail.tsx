// One host, one tier, one change, one log: each has an address of its own.
import { type ReactNode, useContext, useEffect, useState } from "react";
import { AlertsOf } from "./alerts.tsx";
import { Author, ChangeLink, Running, Steps } from "./changes.tsx";
import { coloursOf, HostCard } from "./hosts.tsx";
import { TierCard } from "./flow.tsx";
import { address, ask, refusal } from "./live.ts";
import { Log } from "./log.tsx";
import { ConnectionContext, Pill, Sentence, Table, To } from "./parts.tsx";
import type { Detail } from "./route.ts";
import type { Change, State } from "./state.ts";
import { clock, count, duration, latency, rate } from "./words.ts";

type Unit = {
  id: string;
  assigned: boolean;
  state: string | null;
  pid: number | null;
  restarts: number;
  since: number | null;
  exit: string | null;
};
type OneHost = { limits: string | null; agent_started: number | null; findings: string[] | null; units: Unit[] };

type Incarnation = {
  number: number;
  owner: boolean;
  state: string;
  driver: string;
  release: string | null;
  reason: string;
  created_at: number;
  error: string | null;
  gap_seconds: number | null;
};
type OneTier = { spec: Record<string, unknown>; incarnations: Incarnation[] };

type Placement = { driver: string; slots: string[] };
type Move = {
  tier: string;
  before: Placement | null;
  after: Placement;
  in_place: boolean;
  why: string;
  incarnation: number | null;
  receipt: ({ sentence?: string; gap_seconds?: number | null } & Record<string, unknown>) | null;
};
type Posted = { id: string; step: string; by: string; posted_at: number; state: string; sentence: string; journal: string[] };
type Entry = { name: string; at: number; by: string; outcome: string; sentence: string };
/** What a change asks that waits for another person. */
type Asked = { by: string; why: string; plan: string; until: number };
type OneChange = {
  change: Change;
  moves: Move[];
  notes: string[];
  deadline_seconds: number | null;
  steps: Posted[];
  asked: Asked | null;
  may_answer: boolean;
  trail: Entry[];
  trail_missing: string | null;
};

/** Read a part that is not in the state, again whenever `version` changes. */
function useDetail<Value>(of: Detail, name: string, version: unknown): { value: Value | null; wrong: string | null } {
  const connection = useContext(ConnectionContext);
  const [found, setFound] = useState<{ value: Value | null; wrong: string | null }>({ value: null, wrong: null });
  useEffect(() => {
    let ended = false;
    const read = async () => {
      const answer = await fetch(address(`sluice/${of}/${encodeURIComponent(name)}`, { connection })).catch(() => null);
      if (ended || !answer) return;
      if (answer.ok) setFound({ value: (await answer.json()) as Value, wrong: null });
      else {
        const wrong = await refusal(answer);
        setFound((now) => ({ ...now, wrong }));
      }
    };
    void read();
    return () => {
      ended = true;
    };
  }, [of, name, connection, version]);
  return found;
}

function Pairs({ rows }: { rows: [string, ReactNode][] }) {
  return (
    <dl className="pairs card">
      {rows.map(([name, value]) => [<dt key={name}>{name}</dt>, <dd key={`${name} value`}>{value}</dd>])}
    </dl>
  );
}

/** A value of a declaration in words: lists with commas, and the parts of a resource. */
function words(value: unknown): string {
  if (value === null || value === "" || (Array.isArray(value) && value.length === 0)) return "–";
  if (Array.isArray(value)) return value.map(words).join(", ");
  if (typeof value === "object") {
    return Object.entries(value).filter(([, part]) => part !== null).map(([name, part]) => `${name} ${words(part)}`).join(", ");
  }
  return String(value);
}

function placed(placement: Placement | null): string {
  return placement === null ? "not placed" : `driver ${[placement.driver, placement.slots.length > 0 && `workers ${placement.slots.join(" ")}`].filter(Boolean).join(", ")}`;
}

function OfHost({ name, state }: { name: string; state: State }) {
  const { value, wrong } = useDetail<OneHost>("hosts", name, state.slots);
  const colours = coloursOf(state);
  const host = state.hosts.find((each) => each.name === name);
  const changes = state.changes.filter((change) => change.what.split(" ").includes(name));
  return (
    <>
      {wrong && <p role="alert" className="warn">{wrong}</p>}
      {host && <HostCard host={host} state={state} colours={colours} alone />}
      <AlertsOf state={state} page={`hosts/${name}`} />
      {value && (
        <>
          <h2>Processes</h2>
          <Table
            label={`processes of ${name}`}
            rows={value.units}
            id={(unit) => unit.id}
            none={`Nothing runs on ${name}.`}
            columns={[
              { head: "process", cell: (unit) => <To of="logs" name={`${name}/${unit.id}`} title={`log of ${unit.id}`}>{unit.id}</To> },
              { head: "state", cell: (unit) => <Pill state={unit.state ?? "to come"} /> },
              { head: "since", cell: (unit) => clock(unit.since) },
              { head: "pid", number: true, cell: (unit) => unit.pid ?? "–" },
              { head: "restarts", number: true, cell: (unit) => count(unit.restarts) },
              { head: "end", cell: (unit) => unit.exit ?? (unit.assigned ? "–" : "not assigned any more") },
            ]}
          />
          {value.findings?.map((finding) => <p key={finding} className="warn">{finding}</p>)}
          <p className="soft">
            agent since {clock(value.agent_started)} · {value.limits ?? "the agent has not reported yet"}
          </p>
        </>
      )}
      <ChangesOf changes={changes} of={name} />
      <h2>Log of the agent</h2>
      <Log name={name} />
    </>
  );
}

/** The changes of a host, a tier or a DAG. */
export function ChangesOf({ changes, of }: { changes: Change[]; of: string }) {
  return (
    <>
      <h2>Changes</h2>
      <Table
        label={`changes of ${of}`}
        rows={[...changes].reverse()}
        id={(change) => change.id}
        none={`No change of ${of} is known.`}
        columns={[
          { head: "started", cell: (change) => clock(change.started_at) },
          { head: "change", cell: (change) => <ChangeLink change={change} /> },
          { head: "state", cell: (change) => <Pill state={change.state === "active" ? "in progress" : change.state} /> },
          { head: "by", cell: (change) => <Author by={change.by} /> },
          { head: "took", number: true, cell: (change) => duration(change.seconds) },
          { head: "gap", number: true, cell: (change) => duration(change.gap_seconds) },
        ]}
      />
    </>
  );
}

function OfTier({ name, state }: { name: string; state: State }) {
  const { value, wrong } = useDetail<OneTier>("tiers", name, state.tiers.find((each) => each.name === name)?.incarnation);
  const [chosen, setChosen] = useState<number | null>(null);
  const tier = state.tiers.find((each) => each.name === name);
  const share = state.shares.find((each) => each.tenant === name);
  const audit = state.audit.find((each) => each.tier === name);
  const changes = state.changes.filter(
    (change) => change.what.split(" ").includes(name) || change.moves.some((move) => move.tier === name),
  );
  const error = tier?.error ?? value?.incarnations.find((each) => each.error)?.error;
  return (
    <>
      {wrong && <p role="alert" className="warn">{wrong}</p>}
      {tier && <TierCard tier={tier} state={state} alone />}
      <AlertsOf state={state} page={`tiers/${name}`} />
      <h2>Last error</h2>
      {error ? <pre className="card warn lines">{error}</pre> : <p className="none">No incarnation that is known ended with an error.</p>}
      {tier && (
        <>
          <h2>Workers</h2>
          <Table
            label={`workers of ${name}`}
            rows={tier.workers}
            id={(worker) => worker.slot}
            none={tier.light ? `${name} is light: its driver does the work.` : `${name} has no worker.`}
            columns={[
              { head: "worker", cell: (worker) => <To of="logs" name={`${worker.host}/${worker.slot}`} title={`log of ${worker.slot}`}>{worker.slot}</To> },
              { head: "tasks", cell: (worker) => <To of="logs" name={`${worker.host}/${worker.slot}/executor`} title={`log of the executor of ${worker.slot}`}>log of its executor</To> },
              { head: "host", cell: (worker) => <To of="hosts" name={worker.host}>{worker.host}</To> },
              { head: "state", cell: (worker) => <Pill state={worker.state} /> },
            ]}
          />
          <h2>Figures</h2>
          <Pairs
            rows={[
              ["records in, out", `${rate(tier.rate_in)}, ${rate(tier.rate_out)}`],
              ["lag", count(tier.lag)],
              ["latency p50, p99", `${latency(tier.latency_ms)}, ${latency(tier.latency_p99_ms)}`],
              ["share", share ? `${share.held} of ${share.slots + share.extra} slots, set by ${share.by} (${share.layer})` : "–"],
              ["release", tier.release ? `${tier.release}${tier.release === tier.published ? "" : `; published: ${tier.published}`}` : "–"],
              ["partitions of its state", count(tier.partitions)],
              ["audit", audit ? audit.verdict : "–"],
              ["sentence", tier.sentence],
            ]}
          />
        </>
      )}
      {value && (
        <>
          <h2>Declaration</h2>
          <Pairs rows={Object.entries(value.spec).map(([key, part]) => [key.replaceAll("_", " "), words(part)])} />
          <h2>Incarnations</h2>
          <Table
            label={`incarnations of ${name}`}
            rows={value.incarnations}
            id={(each) => String(each.number)}
            none={`${name} has not run yet.`}
            columns={[
              { head: "number", cell: (each) => `${each.number}${each.owner ? " (owner)" : ""}` },
              { head: "state", cell: (each) => <Pill state={each.state} /> },
              { head: "driver", cell: (each) => <To of="hosts" name={each.driver}>{each.driver}</To> },
              { head: "release", cell: (each) => each.release ?? "–" },
              { head: "created", cell: (each) => clock(each.created_at) },
              { head: "because of", cell: (each) => each.reason },
              { head: "gap", number: true, cell: (each) => duration(each.gap_seconds) },
              { head: "error", cell: (each) => (each.error ? <span className="clip" title={each.error}>{each.error}</span> : "–") },
            ]}
          />
        </>
      )}
      <ChangesOf changes={changes} of={name} />
      <h2>Log of the driver</h2>
      {value && value.incarnations.length > 1 && (
        <select aria-label="incarnation" value={chosen ?? ""} onChange={(event) => setChosen(Number(event.target.value) || null)}>
          <option value="">the owner's</option>
          {value.incarnations.map((each) => <option key={each.number} value={each.number}>{each.number} ({each.state})</option>)}
        </select>
      )}
      <Log name={chosen === null ? name : `driver-${name}-${chosen}`} version={String(tier?.incarnation)} />
    </>
  );
}

/** The plan and the reason of a change that waits, and the form of the other person's answer. */
function Answer({ change, asked, mayAnswer, answered }: { change: Change; asked: Asked; mayAnswer: boolean; answered: () => void }) {
  const connection = useContext(ConnectionContext);
  const [why, setWhy] = useState("");
  const [wrong, setWrong] = useState<string | null>(null);
  const [sending, setSending] = useState(false);
  const send = async (approved: boolean) => {
    setSending(true);
    const refused = await ask(`changes/${encodeURIComponent(change.id)}/answer`, connection, { approved, why });
    setWrong(refused);
    setSending(false);
    if (refused === null) answered();
  };
  return (
    <section className="card running" aria-label={`approval of ${change.what}`}>
      <header><h2>Waits for the approval of another person</h2></header>
      <dl className="pairs">
        <dt>asked by</dt><dd><Author by={asked.by} /></dd>
        <dt>because</dt><dd>{asked.why}</dd>
        <dt>the plan</dt><dd>{asked.plan}</dd>
        <dt>without an answer</dt><dd>the change ends as refused at {clock(asked.until)}; nothing is changed before</dd>
      </dl>
      {mayAnswer ? (
        <>
          <div className="field">
            <label htmlFor="sluice-why">Why (a refusal needs it)</label>
            <input id="sluice-why" value={why} maxLength={1000} onChange={(event) => setWhy(event.target.value)} />
          </div>
          <div className="buttons">
            <button type="button" className="first" disabled={sending} onClick={() => void send(true)}>Approve {change.what}</button>
            <button type="button" disabled={sending || !why.trim()} onClick={() => void send(false)}>Refuse {change.what}</button>
          </div>
        </>
      ) : <p className="soft">Airflow's roles do not let you answer.</p>}
      {wrong && <p role="alert" className="warn"><Sentence text={wrong} /></p>}
    </section>
  );
}

function OfChange({ name, state }: { name: string; state: State }) {
  const [answers, setAnswers] = useState(0);
  const listed = state.changes.find((each) => each.id === name);
  const { value, wrong } = useDetail<OneChange>("changes", name, JSON.stringify([state.doing, listed, answers]));
  const doing = state.doing.find((each) => each.change === name);
  if (!value) return wrong ? <p role="alert" className="warn">{wrong}</p> : <p className="none" role="status">Reading the change…</p>;
  const { change } = value;
  return (
    <>
      {value.asked && (
        <Answer change={change} asked={value.asked} mayAnswer={value.may_answer} answered={() => setAnswers((now) => now + 1)} />
      )}
      {doing && !value.asked ? <Running doing={doing} change={change} /> : (
        <section className="card">
          <header>
            <Pill state={change.state} />
            <span className="soft">by <Author by={change.by} /> · {clock(change.started_at)}</span>
          </header>
          <Steps change={change} step={doing?.step ?? null} />
        </section>
      )}
      <h2>Predicted and measured</h2>
      <Table
        label="predicted and measured"
        rows={[
          { what: "duration", predicted: change.predicted_seconds, measured: change.seconds },
          { what: "gap", predicted: change.predicted_gap_seconds, measured: change.gap_seconds },
          ...("abort" in change.steps ? [{ what: "abort", predicted: change.abort_predicted_seconds, measured: change.steps.abort ?? null }] : []),
        ]}
        id={(row) => row.what}
        none=""
        columns={[
          { head: "of", cell: (row) => row.what },
          { head: "predicted", number: true, cell: (row) => duration(row.predicted) },
          { head: "measured", number: true, cell: (row) => duration(row.measured) },
        ]}
      />
      {value.notes.map((note) => <p key={note}><Sentence text={note} /></p>)}
      <h2>Moves</h2>
      <Table
        label="moves"
        rows={value.moves}
        id={(move) => move.tier}
        none="No tier moves."
        columns={[
          { head: "tier", cell: (move) => <To of="tiers" name={move.tier}>{move.tier}</To> },
          { head: "from", cell: (move) => placed(move.before) },
          { head: "to", cell: (move) => placed(move.after) + (move.in_place ? ", in place" : "") },
          { head: "incarnation", number: true, cell: (move) => move.incarnation ?? "–" },
          { head: "gap", number: true, cell: (move) => duration(move.receipt?.gap_seconds ?? null) },
          { head: "receipt", cell: (move) => (move.receipt ? move.receipt.sentence ?? words(move.receipt) : "–") },
        ]}
      />
      <h2>Steps</h2>
      <ol className="posted" aria-label="posted steps">
        {value.steps.map((step) => (
          <li key={step.id} className="card">
            <header>
              <b>{step.step}</b>
              <Pill state={step.state} />
            </header>
            <p className={step.state === "failed" ? "warn lines" : "lines"}><Sentence text={step.sentence} /></p>
            <p className="soft">posted {clock(step.posted_at)}{step.step in change.steps && ` · took ${duration(change.steps[step.step])}`}</p>
            {step.journal.length > 0 && (
              <details open={step.state !== "done"}>
                <summary>journal ({step.journal.length})</summary>
                <ol>{step.journal.map((line, number) => <li key={number}>{line}</li>)}</ol>
              </details>
            )}
          </li>
        ))}
      </ol>
      <h2>Trail</h2>
      {value.trail_missing && <p className="warn"><Sentence text={value.trail_missing} /></p>}
      <Table
        label="trail"
        rows={value.trail}
        id={(entry) => entry.name}
        none="The trail has no entry of this change."
        columns={[
          { head: "at", cell: (entry) => clock(entry.at) },
          { head: "what", cell: (entry) => <Pill state={entry.outcome} /> },
          { head: "by", cell: (entry) => <Author by={entry.by} /> },
          { head: "sentence", cell: (entry) => <Sentence text={entry.sentence || "–"} /> },
        ]}
      />
    </>
  );
}

const HEADS: Record<Detail, string> = { hosts: "Host", tiers: "Tier", changes: "Change", logs: "Log of" };

/** One host, tier, change or log, with the way back to its view. */
export function One({ of, name, state }: { of: Detail; name: string; state: State }) {
  const shown = of === "changes" ? state.changes.find((change) => change.id === name)?.what ?? name : name;
  return (
    <>
      <header className="one">
        <h2>{HEADS[of]} {shown}</h2>
        {of === "hosts" && <To of="hosts">all hosts</To>}
        {of === "tiers" && <To of="flow">all tiers</To>}
        {of === "changes" && <To of="changes">all changes</To>}
      </header>
      {of === "hosts" && <OfHost key={name} name={name} state={state} />}
      {of === "tiers" && <OfTier key={name} name={name} state={state} />}
      {of === "changes" && <OfChange key={name} name={name} state={state} />}
      {of === "logs" && <Log name={name} />}
    </>
  );
}
