// Triggers and follows runbooks through Airflow's REST API, with the user's own session.
import { type Action, conf, type Plan, plan, type Values } from "./form.ts";
import { address, refusal } from "./live.ts";

export type Run = { dag: string; id: string };
export type Task = { task_id: string; state: string | null; try_number: number };
export type Look = { state: string; tasks: Task[] };

async function airflow<Answer>(path: string, body?: unknown, method = body ? "POST" : "GET"): Promise<Answer> {
  const answer = await fetch(address(`api/v2/${path}`), {
    method,
    headers: { Accept: "application/json", "Content-Type": "application/json" },
    ...(body ? { body: JSON.stringify(body) } : {}),
  });
  if (!answer.ok) throw new Error(await refusal(answer));
  return (await answer.json()) as Answer;
}

const path = (run: Run) => `dags/${encodeURIComponent(run.dag)}/dagRuns/${encodeURIComponent(run.id)}`;

/** The address of a run in Airflow. */
export function runAddress(run: Run): string {
  return address(`dags/${encodeURIComponent(run.dag)}/runs/${encodeURIComponent(run.id)}`);
}

/** The address of a runbook in Airflow. */
export function dagAddress(dag: string): string {
  return address(`dags/${encodeURIComponent(dag)}`);
}

/** The author of the changes that a run asks for. */
export function author(run: Run): string {
  return `airflow:${run.dag}/${run.id}`;
}

/** Start a runbook; `dry` only plans. */
export async function trigger(action: Action, values: Values, dry: boolean): Promise<Run> {
  const id = `page__${dry ? "dry_run__" : ""}${new Date().toISOString().replace("Z", "+00:00")}`;
  const run = { dag: action.dag_id, id };
  const settings = { ...conf(action, values), ...(dry ? { dry_run: true } : {}) };
  await airflow(`dags/${encodeURIComponent(run.dag)}/dagRuns`, { dag_run_id: id, logical_date: null, conf: settings });
  return run;
}

/** Look at a run: its state, and its tasks in the order in which they ran. */
export async function look(run: Run): Promise<Look> {
  const [state, tasks] = await Promise.all([
    airflow<{ state: string }>(path(run)),
    airflow<{ task_instances: (Task & { start_date: string | null })[] }>(`${path(run)}/taskInstances`),
  ]);
  const order = (task: { start_date: string | null }) => task.start_date ?? "9";
  return {
    state: state.state,
    tasks: tasks.task_instances.sort((one, other) => order(one).localeCompare(order(other))),
  };
}

/** Return the plan that the first task of a dry run has left; the tasks after it were skipped. */
export async function planOf(run: Run, { tasks }: Look): Promise<Plan> {
  const first = tasks.find((task) => task.state === "success")!;
  return plan((await airflow<{ value: unknown }>(`${path(run)}/taskInstances/${first.task_id}/xcomEntries/plan`)).value);
}

type Event = { event: string; error_detail?: { exc_value: string }[] };

/** Return why a task failed: the last error of its log; null if the log has none. */
export async function reason(run: Run, task: Task): Promise<string | null> {
  const log = await airflow<{ content: Event[] }>(
    `${path(run)}/taskInstances/${task.task_id}/logs/${task.try_number}?full_content=true`,
  );
  return log.content.flatMap((event) => event.error_detail ?? []).at(-1)?.exc_value ?? null;
}

/** End a run as failed: its change is undone, and every tier continues. */
export async function end(run: Run): Promise<void> {
  await airflow(path(run), { state: "failed" }, "PATCH");
}
