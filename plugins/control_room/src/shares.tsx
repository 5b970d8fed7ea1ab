// The view Shares: who holds which slots, who set the number, what the scaler wants, and batch jobs.
import { Act, Table } from "./parts.tsx";
import type { BatchJob, State } from "./state.ts";
import { clock } from "./words.ts";

export function Shares({ state }: { state: State }) {
  const tiers = new Map(state.tiers.map((tier) => [tier.name, tier]));
  return (
    <>
      <Table
        label="shares"
        rows={state.shares}
        id={(share) => share.tenant}
        none="No tenant has a share. Add shares below shares: in the site file."
        columns={[
          { head: "share of", cell: (share) => <b>{share.tenant}</b> },
          {
            head: "slots",
            cell: (share) => share.light ? "in the driver" : (
              <span className="meter" title={`${share.held} of ${share.maximum}`}>
                <i style={{ width: `${Math.min(100, (100 * share.held) / Math.max(1, share.maximum))}%` }} />
                <b>{share.held}</b> of {share.slots + share.extra}
              </span>
            ),
          },
          { head: "min – max", number: true, cell: (share) => `${share.minimum} – ${share.maximum}` },
          { head: "set by", cell: (share) => `${share.by} (${share.layer})` },
          { head: "since", cell: (share) => clock(share.since) },
          { head: "until", cell: (share) => clock(share.until) },
          { head: "where", cell: (share) => share.where ?? "anywhere" },
          {
            head: "scaler",
            cell: (share) => {
              const decision = tiers.get(share.tenant)?.scaler;
              return decision ? `${decision.wanted} (${decision.mode}): ${decision.reason}` : "–";
            },
          },
          {
            head: "action",
            cell: (share) => share.light ? null : (
              <span className="buttons">
                <Act kind="scale" tier={share.tenant} />
                {tiers.has(share.tenant) && <Act kind="burst" tier={share.tenant} />}
                {share.extra > 0 && <Act kind="leave" tier={share.tenant} />}
              </span>
            ),
          },
        ]}
      />
      {state.layers.length > 0 && (
        <Table
          label="layers"
          rows={state.layers}
          id={(entry) => `${entry.tenant} ${entry.layer} ${entry.sets}`}
          none=""
          columns={[
            { head: "set for", cell: (entry) => <b>{entry.tenant}</b> },
            { head: "layer", cell: (entry) => entry.layer },
            { head: "sets", cell: (entry) => entry.sets },
            { head: "owner", cell: (entry) => entry.owner },
            { head: "since", cell: (entry) => clock(entry.at) },
            { head: "until", cell: (entry) => clock(entry.until) },
          ]}
        />
      )}
      {state.shifts.length > 0 && (
        <Table
          label="shifts ahead"
          rows={state.shifts}
          id={(shift) => shift.name}
          none=""
          columns={[
            { head: "shift", cell: (shift) => <b>{shift.name}</b> },
            { head: "begins", cell: (shift) => clock(shift.begins) },
            { head: "shares", cell: (shift) => Object.entries(shift.shares).map(([tenant, numbers]) => `${tenant}: ${numbers}`).join("; ") || "those of the site file" },
          ]}
        />
      )}
      {state.batch_jobs.length > 0 && <BatchJobs jobs={state.batch_jobs} />}
    </>
  );
}

function BatchJobs({ jobs }: { jobs: BatchJob[] }) {
  return (
    <Table
      label="batch jobs"
      rows={jobs}
      id={(job) => job.job}
      none=""
      columns={[
        { head: "batch job", cell: (job) => <b>{job.job}</b> },
        { head: "tenant", cell: (job) => job.tenant },
        { head: "state", cell: (job) => job.state },
        { head: "slots", cell: (job) => (job.wanted === null ? job.slots : `${job.slots} of ${job.wanted}`) },
        { head: "since", cell: (job) => clock(job.since) },
        { head: "reason", cell: (job) => job.reason },
      ]}
    />
  );
}
