// The dialog of an action: its fields, the plan of a dry run, then the runbook and its steps.
import { type FormEvent, useEffect, useRef, useState } from "react";
import { type Action, type Field, isWhole, optional, parts, type Plan, title, type Values } from "./form.ts";
import { Pill, Sentence } from "./parts.tsx";
import { author, dagAddress, end, type Look, look, planOf, reason, type Run, runAddress, trigger } from "./runs.ts";
import type { Patch } from "./state.ts";

const LOOK_MILLISECONDS = 1000;
const OVER = ["success", "failed"];

type Stage =
  | { at: "form" }
  | { at: "planning"; run: Run | null; look: Look | null }
  | { at: "planned"; run: Run; plan: Plan }
  | { at: "running"; run: Run | null; look: Look | null }
  | { at: "over"; run: Run; look: Look }
  | { at: "wrong"; run: Run | null; sentence: string };

function Input({ field, value, change }: { field: Field; value: string; change: (value: string) => void }) {
  const id = `sluice-field-${field.name}`;
  const needed = !optional(field);
  return (
    <div className="field">
      <label htmlFor={id}>{field.title ?? field.name}{needed ? "" : " (optional)"}</label>
      {field.enum ? (
        <select id={id} value={value} required={needed} onChange={(event) => change(event.target.value)}>
          {(needed || !field.enum.includes(null)) && value === "" && <option value="">choose</option>}
          {field.enum.map((each) => <option key={each ?? ""} value={each ?? ""}>{each ?? "all"}</option>)}
        </select>
      ) : (
        <input
          id={id}
          type={isWhole(field) ? "number" : "text"}
          value={value}
          required={needed}
          min={isWhole(field) ? field.minimum : undefined}
          pattern={field.pattern?.replace(/^\^|\$$/g, "")}
          placeholder={field.examples?.join(", ")}
          onChange={(event) => change(event.target.value)}
        />
      )}
      {field.description && <small>{field.description}</small>}
    </div>
  );
}

function PlanOf({ plan }: { plan: Plan }) {
  const { unpredicted } = plan.plan ?? {};
  return (
    <>
      <p>The plan. Nothing has moved yet.</p>
      <ul aria-label="plan">
        {parts(plan).map((part) => <li key={part}>{part}</li>)}
        {unpredicted && <li>besides: {unpredicted}</li>}
      </ul>
    </>
  );
}

function Tasks({ look: seen }: { look: Look | null }) {
  const shown = seen?.tasks.filter((task) => task.state !== "skipped" || task.task_id !== "abort") ?? [];
  return (
    <ul className="tasks" aria-label="steps of the run">
      {shown.map((task) => (
        <li key={task.task_id}>{task.task_id} <Pill state={task.state ?? "to come"} /></li>
      ))}
    </ul>
  );
}

/** Look at a run every second until it is over. While the API server does not answer, the run goes on. */
async function watch(run: Run, seen: (look: Look) => void, alive: () => boolean): Promise<Look | null> {
  while (alive()) {
    const found = await look(run).catch((error: unknown) => {
      if (error instanceof TypeError) return null; // what `fetch` throws without an answer
      throw error;
    });
    if (found) seen(found);
    if (found && OVER.includes(found.state)) return found;
    await new Promise((resolve) => setTimeout(resolve, LOOK_MILLISECONDS));
  }
  return null;
}

/** Why a run failed, from the log of its first failed task. */
async function failure(run: Run, found: Look): Promise<string> {
  const task = found.tasks.find((each) => each.state === "failed");
  const why = task && (await reason(run, task).catch(() => null));
  return why ?? `The run failed${task ? ` in ${task.task_id}` : ""}.`;
}

type Chosen = { action: Action; preset: Values; state: Patch; close: () => void };

export function Dialog({ action, preset, state, close }: Chosen) {
  const dialog = useRef<HTMLDialogElement>(null);
  const alive = useRef(true);
  const [values, setValues] = useState<Values>(() => ({
    ...Object.fromEntries(action.fields.map((field) => [field.name, String(field.default ?? "")])),
    ...preset,
  }));
  const [stage, setStage] = useState<Stage>({ at: "form" });
  const asked = action.fields.filter((field) => !(field.name in preset));
  const name = title(action, values);

  const attempt = (work: () => Promise<void>) => {
    work().catch((error: unknown) =>
      setStage((now) => ({ at: "wrong", run: "run" in now ? now.run : null, sentence: String((error as Error).message ?? error) })),
    );
  };
  const dryRun = () => attempt(async () => {
    setStage({ at: "planning", run: null, look: null });
    const run = await trigger(action, values, true);
    const found = await watch(run, (seen) => setStage({ at: "planning", run, look: seen }), () => alive.current);
    if (found?.state === "success") setStage({ at: "planned", run, plan: await planOf(run, found) });
    else if (found) setStage({ at: "wrong", run, sentence: await failure(run, found) });
  });
  const start = () => attempt(async () => {
    setStage({ at: "running", run: null, look: null });
    const run = await trigger(action, values, false);
    const found = await watch(run, (seen) => setStage({ at: "running", run, look: seen }), () => alive.current);
    if (found?.state === "success") setStage({ at: "over", run, look: found });
    else if (found) setStage({ at: "wrong", run, sentence: await failure(run, found) });
  });

  useEffect(() => {
    alive.current = true;
    dialog.current!.showModal();
    if (asked.length === 0) dryRun();
    return () => {
      alive.current = false;
    };
  }, []);

  const run = "run" in stage ? stage.run : null;
  const doing = (state.doing ?? []).filter((each) => run && each.by === author(run));
  /** A dry run that still waits for its turn is of no use any more. */
  const closed = () => {
    if (stage.at === "planning" && stage.run && stage.look?.state === "queued") void end(stage.run).catch(() => {});
    close();
  };
  return (
    <dialog ref={dialog} aria-label={name} onClose={closed}>
      <h2>{name}</h2>
      <p className="soft">{action.summary}</p>
      {stage.at === "form" && asked.length > 0 && (
        <form onSubmit={(event: FormEvent) => { event.preventDefault(); dryRun(); }}>
          {asked.map((field) => (
            <Input
              key={field.name}
              field={field}
              value={values[field.name] ?? ""}
              change={(value) => setValues((now) => ({ ...now, [field.name]: value }))}
            />
          ))}
          <div className="buttons"><button type="submit" className="first">Show the plan</button></div>
        </form>
      )}
      <div role="status">
        {stage.at === "planning" && <p>Making the plan: the runbook runs with dry_run, and nothing moves…</p>}
        {"look" in stage && stage.look?.state === "queued" && (
          <p>Waits until another run of <a href={dagAddress(action.dag_id)}>{action.dag_id}</a> is over: one runs at a time.</p>
        )}
        {stage.at === "planned" && <PlanOf plan={stage.plan} />}
        {stage.at === "running" && (
          <>
            <p>The runbook runs. To close this window does not end it.</p>
            {doing.map((each) => <p key={each.change}><Sentence text={each.sentence} /></p>)}
            <Tasks look={stage.look} />
          </>
        )}
        {stage.at === "over" && <><p>Done.</p><Tasks look={stage.look} /></>}
      </div>
      {stage.at === "wrong" && <p role="alert" className="warn">{stage.sentence}</p>}
      <div className="buttons">
        {stage.at === "planned" && <button type="button" className="first" autoFocus onClick={start}>{name} now</button>}
        {stage.at === "running" && stage.run && (
          <button type="button" onClick={() => { const { run } = stage; if (run) attempt(() => end(run)); }}>Abort</button>
        )}
        <button type="button" onClick={() => dialog.current!.close()}>Close</button>
        {run && <a href={runAddress(run)}>Run in Airflow</a>}
      </div>
    </dialog>
  );
}
