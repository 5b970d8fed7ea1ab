// The sources of records from outside, below the flow.
import { type Column, Pill, Table } from "./parts.tsx";
import type { Source, State } from "./state.ts";
import { clock, count, rate } from "./words.ts";

const COLUMNS: Column<Source>[] = [
  { head: "source", cell: (source) => <span title={source.where}>{source.name} → {source.stream}</span> },
  { head: "kind", cell: (source) => source.kind },
  { head: "state", cell: (source) => <Pill state={source.state} /> },
  { head: "host", cell: (source) => source.host },
  { head: "in", cell: (source) => rate(source.rate), number: true },
  { head: "records", cell: (source) => count(source.records), number: true },
  { head: "last record", cell: (source) => clock(source.last) },
  { head: "waiting bytes", cell: (source) => count(source.waiting_bytes), number: true },
  { head: "answers 429", cell: (source) => count(source.throttled), number: true },
  { head: "failures", cell: (source) => <span title={source.failures.at(-1)?.how}>{source.failures.length}</span>, number: true },
];

/** The sources as a table; nothing if there is none. */
export function Sources({ state }: { state: State }) {
  if (state.sources.length === 0) return null;
  return (
    <section aria-label="Sources">
      <h2>Sources</h2>
      <Table label="Sources" columns={COLUMNS} rows={state.sources} id={(source) => `${source.name}@${source.stream}`} none="" />
    </section>
  );
}
