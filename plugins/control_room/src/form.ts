// The fields of a runbook's form: what is asked, and what is sent to Airflow. Pure.

export type Field = {
  name: string;
  title?: string;
  description?: string | null;
  type: string | string[];
  enum?: (string | null)[];
  pattern?: string;
  minimum?: number;
  examples?: string[];
  default?: string | number | null;
};

export type Action = { kind: string; dag_id: string; summary: string; fields: Field[] };
export type Values = Record<string, string>;

/** Whether a field may stay empty. */
export function optional(field: Field): boolean {
  return "default" in field || [field.type].flat().includes("null");
}

/** Whether a field takes whole numbers only. */
export function isWhole(field: Field): boolean {
  const types = [field.type].flat();
  return types.includes("integer") && !types.includes("string");
}

/** Return the configuration of a run; fields that stay empty are left to the runbook. */
export function conf(action: Action, values: Values): Record<string, string | number> {
  const filled = action.fields.filter((field) => (values[field.name] ?? "") !== "");
  return Object.fromEntries(
    filled.map((field) => [field.name, isWhole(field) ? Number(values[field.name]) : values[field.name]!]),
  );
}

/** What is done, as buttons say it: `Drain`, `Write off`. */
export function verb(action: Action): string {
  return action.kind.charAt(0).toUpperCase() + action.kind.slice(1).replace("-", " ");
}

/** What is done to what, as buttons' names and titles say it: `Drain h1`, `Scale enrich`. */
export function title(action: Action, values: Values): string {
  if (action.kind === "leave") return values.tier ? `Leave EC2 with ${values.tier}` : "Leave EC2";
  return `${verb(action)} ${values.host || values.tier || (action.fields.some((field) => field.name === "tier") ? "all tiers" : "")}`.trim();
}

export type Plan = {
  sentence: string;
  plan?: { unpredicted?: string };
  /** Of a burst only. */
  instances?: number;
  instance_types?: string[];
  cost_per_hour?: number | null;
  break_even?: { sentence: string };
};

/** Read the plan that a dry run has left; Airflow may have written it as text. */
export function plan(value: unknown): Plan {
  const read: unknown = typeof value === "string" ? JSON.parse(value) : value;
  return read as Plan;
}

/** The parts of a plan: the instances of a burst, each move, the predicted time and gap, and notes. */
export function parts({ sentence, instances, instance_types, cost_per_hour, break_even }: Plan): string[] {
  const cost = cost_per_hour == null ? "" : `, for at most ${cost_per_hour} an hour`;
  const launched = instances ? `launches ${instances} of ${instance_types?.join(" or ")}${cost}` : "launches no instance";
  return [
    ...(instances === undefined ? [] : [launched]),
    ...(break_even ? [break_even.sentence] : []),
    ...sentence.replace(/^would do: /, "").split("; "),
  ];
}
