// Small parts that the views share.
import type { ReactNode } from "react";
import { createContext, useContext } from "react";
import type { Action, Values } from "./form.ts";
import { title, verb } from "./form.ts";
import { type Detail, path, type Tab } from "./route.ts";
import { Link } from "./router.ts";
import { dagAddress } from "./runs.ts";
import { tone } from "./words.ts";

/** A state as a coloured word. */
export function Pill({ state }: { state: string }) {
  return <span className={`pill ${tone(state)}`}>{state}</span>;
}

export type Acting = { actions: Action[]; act: (action: Action, values: Values) => void };
export const ActingContext = createContext<Acting>({ actions: [], act: () => {} });

/** A button for a runbook; nothing if the user may not start it. */
export function Act({ kind, ...values }: { kind: string } & Values) {
  const { actions, act } = useContext(ActingContext);
  const action = actions.find((each) => each.kind === kind);
  if (!action) return null;
  return (
    <button type="button" aria-label={title(action, values)} title={action.summary} onClick={() => act(action, values)}>
      {verb(action)}
    </button>
  );
}

export const ConnectionContext = createContext<string | null>(null);

/** A link to one host, tier, change or log of the page, or to one of its views. */
export function To({ of, name, title, children }: { of: Tab | Detail; name?: string; title?: string; children: ReactNode }) {
  const connection = useContext(ConnectionContext);
  return <Link to={path(of, name, connection)} title={title}>{children}</Link>;
}

/** Links to runbooks that only Airflow's form starts; nothing for viewers. */
export function Runbooks({ names, label }: { names: string[]; label: string }) {
  const { actions } = useContext(ActingContext);
  const connection = useContext(ConnectionContext);
  if (actions.length === 0) return null;
  return (
    <p className="soft">
      {label}:{" "}
      {names.map((name, number) => (
        <span key={name}>{number > 0 && ", "}<a href={dagAddress(connection ? `${connection}_${name}` : name)}>{name}</a></span>
      ))}
    </p>
  );
}

export type Column<Row> = { head: string; cell: (row: Row) => ReactNode; number?: boolean };

/** A table that becomes a list of cards where it is narrow. */
export function Table<Row>({ label, columns, rows, id, none }: {
  label: string;
  columns: Column<Row>[];
  rows: Row[];
  id: (row: Row) => string;
  none: string;
}) {
  if (rows.length === 0) return <p className="none">{none}</p>;
  return (
    <table aria-label={label}>
      <thead>
        <tr>
          {columns.map((column) => (
            <th key={column.head} scope="col" className={column.number ? "number" : undefined}>{column.head}</th>
          ))}
        </tr>
      </thead>
      <tbody>
        {rows.map((row) => (
          <tr key={id(row)}>
            {columns.map((column) => (
              <td key={column.head} data-head={column.head} className={column.number ? "number" : undefined}>
                <span>{column.cell(row)}</span>
              </td>
            ))}
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** Backquoted commands of a sentence as code. */
export function Sentence({ text }: { text: string }) {
  return <>{text.split("`").map((part, number) => (number % 2 ? <code key={number}>{part}</code> : part))}</>;
}
