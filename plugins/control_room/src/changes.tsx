// The view Changes: what runs now, and what ran before.
import { useContext, useState } from "react";
import { ActingContext, Pill, Sentence, Table, To } from "./parts.tsx";
import { end, runAddress } from "./runs.ts";
import type { Change, Doing, State } from "./state.ts";
import { clock, duration, run } from "./words.ts";

/** The steps of a change: done with their times, running, or still to come. */
export function Steps({ change, step }: { change: Change; step: string | null }) {
  const all = change.all_steps.length > 0 ? change.all_steps : Object.keys(change.steps);
  return (
    <ol className="steps">
      {all.map((name) => {
        const now = name === step;
        const took = change.steps[name];
        return (
          <li key={name} className={now ? "now" : took === undefined ? "later" : "done"} aria-current={now ? "step" : undefined}>
            {name}{took !== undefined && !now && <small> {duration(took)}</small>}
          </li>
        );
      })}
    </ol>
  );
}

export function Author({ by }: { by: string }) {
  const found = run(by);
  return found ? <a href={runAddress({ dag: found.dag, id: found.run })}>{found.dag}</a> : <>{by}</>;
}

/** The change of a step in progress; none for a start or a stop of a tier. */
export function changeOf(doing: Doing, state: State): Change | undefined {
  return state.changes.find((each) => each.id === doing.change);
}

/** The name of a change; a link if the change has steps. A start or a stop of a tier has none. */
export function ChangeLink({ change }: { change: Change }) {
  return change.all_steps.length > 0 ? <To of="changes" name={change.id}>{change.what}</To> : <>{change.what}</>;
}

/** How to abort a change: a button if a run of Airflow asked for it, else the command; nothing for viewers. */
function Abort({ change }: { change: Change }) {
  const { actions } = useContext(ActingContext);
  const [wrong, setWrong] = useState<string | null>(null);
  const asked = run(change.by);
  if (actions.length === 0) return null;
  if (asked === null) {
    return <p className="soft">To abort it: <code>sluice abort {change.id}</code></p>;
  }
  const abort = () => {
    if (!confirm(`Abort ${change.what}? What it has done is undone, and every tier continues.`)) return;
    end({ dag: asked.dag, id: asked.run }).catch((error: Error) => setWrong(error.message));
  };
  return (
    <div className="buttons">
      <button type="button" aria-label={`Abort ${change.what}`} onClick={abort}>Abort</button>
      {wrong && <p role="alert" className="warn">{wrong}</p>}
    </div>
  );
}

/** A change in progress: its step, progress and sentence. */
export function Running({ doing, change }: { doing: Doing; change: Change | undefined }) {
  const { progress } = doing;
  return (
    <section className="card running" aria-label={`in progress: ${doing.what}`}>
      <header>
        <h2>{change ? <ChangeLink change={change} /> : doing.what}</h2>
        {progress && <Pill state={progress.verdict} />}
        <span className="soft">by <Author by={doing.by} /></span>
      </header>
      {change && <Steps change={change} step={doing.step} />}
      <p><Sentence text={doing.sentence} /></p>
      {progress && (
        <p className="soft">
          {progress.moves > 0 && `${progress.handed_over} of ${progress.moves} tiers handed over · `}
          {duration(progress.seconds)} so far · about {duration(progress.seconds_left)} left
        </p>
      )}
      {progress?.waits_for && progress.waits_for !== doing.sentence && <p className="warn">waits for <Sentence text={progress.waits_for} /></p>}
      {change && doing.step !== "abort" && <Abort change={change} />}
    </section>
  );
}

export function Changes({ state }: { state: State }) {
  return (
    <>
      {state.doing.map((doing) => <Running key={`${doing.change} ${doing.step}`} doing={doing} change={changeOf(doing, state)} />)}
      {state.doing.length === 0 && <p className="none">No change is in progress.</p>}
      <h2>History</h2>
      <Table
        label="history of changes"
        rows={[...state.changes].reverse()}
        id={(change) => change.id}
        none="No change was carried out yet."
        columns={[
          { head: "started", cell: (change) => clock(change.started_at) },
          { head: "change", cell: (change) => <b><ChangeLink change={change} /></b> },
          { head: "state", cell: (change) => <Pill state={change.state === "active" ? "in progress" : change.state} /> },
          { head: "by", cell: (change) => <Author by={change.by} /> },
          { head: "took", number: true, cell: (change) => duration(change.seconds) },
          { head: "predicted", number: true, cell: (change) => duration(change.predicted_seconds) },
          { head: "gap", number: true, cell: (change) => duration(change.gap_seconds) },
          { head: "predicted gap", number: true, cell: (change) => duration(change.predicted_gap_seconds) },
          {
            head: "moves",
            cell: (change) => change.moves.map((move) => `${move.tier} → ${[...new Set([move.driver, ...move.workers])].join(" ")}`).join("; "),
          },
        ]}
      />
      {state.older_changes && <p className="soft">Older changes: <code>sluice changes</code></p>}
    </>
  );
}
