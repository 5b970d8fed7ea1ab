// The view Truth: what the audit knows about every record, and the action that answers it.
import { answer } from "./notes.ts";
import { Act, Pill, Runbooks, Sentence, Table } from "./parts.tsx";
import type { Audit, State } from "./state.ts";
import { clock, count, duration, rate } from "./words.ts";

function Answer({ line, now }: { line: Audit; now: number }) {
  const to = answer(line, now);
  if (to === "replay") return <Act kind="replay" tier={line.tier} records="inputs" />;
  if (to === null) return <>–</>;
  return <><Act kind="scale" tier={line.tier} /><Runbooks label="an hour is late" names={["hour_complete"]} /></>;
}

export function Truth({ state }: { state: State }) {
  const unknown = state.figures_missing && "Unknown, because there are no figures.";
  return (
    <>
      <h2>Audit</h2>
      <Table
        label="audit"
        rows={state.audit}
        id={(line) => line.tier}
        none={unknown ?? "The audit has not looked at a tier yet."}
        columns={[
          { head: "tier", cell: (line) => <b>{line.tier}</b> },
          { head: "verdict", cell: (line) => (line.lost || line.verdict === "LOST" ? <Pill state="LOST" /> : line.verdict) },
          { head: "accounted", number: true, cell: (line) => count(line.once) },
          { head: "again", number: true, cell: (line) => count(line.again) },
          { head: "late", number: true, cell: (line) => count(line.late) },
          { head: "lost", number: true, cell: (line) => count(line.lost) },
          { head: "complete up to", cell: (line) => clock(line.complete) },
          { head: "not covered", cell: (line) => line.partial || "–" },
          { head: "answer", cell: (line) => <Answer line={line} now={state.at} /> },
        ]}
      />
      <h2>Losses</h2>
      <Table
        label="losses"
        rows={state.losses}
        id={(loss) => String(loss.number)}
        none={unknown ?? "No record is lost."}
        columns={[
          { head: "loss", cell: (loss) => `${loss.number} of ${loss.tier}` },
          { head: "found", cell: (loss) => clock(loss.found_at) },
          { head: "records", number: true, cell: (loss) => count(loss.records) },
          { head: "what", cell: (loss) => loss.sentence },
          {
            head: "answer",
            cell: (loss) => (
              <>
                <Act kind="replay" tier={loss.tier} records="inputs" />{" "}
                <Sentence text={`\`sluice replay ${loss.tier}\`, then \`sluice audit --settle ${loss.number}\``} />
              </>
            ),
          },
        ]}
      />
      <h2>Quarantine</h2>
      <Table
        label="quarantine"
        rows={state.tiers.filter((tier) => tier.quarantined)}
        id={(tier) => tier.name}
        none={unknown ?? "No record went to quarantine since the tiers' drivers started."}
        columns={[
          { head: "tier", cell: (tier) => <b>{tier.name}</b> },
          { head: "records since its driver started", number: true, cell: (tier) => count(tier.quarantined) },
          {
            head: "answer",
            cell: (tier) => (
              <>
                <Act kind="replay" tier={tier.name} records="quarantine" />{" "}
                <Sentence text={`correct the cause, then \`sluice replay ${tier.name} --quarantine\``} />
              </>
            ),
          },
        ]}
      />
      <h2>Backpressure</h2>
      <Table
        label="holds"
        rows={[...state.holds].reverse()}
        id={(hold) => `${hold.tier} ${hold.begun}`}
        none="No tier was throttled."
        columns={[
          { head: "began", cell: (hold) => clock(hold.begun) },
          { head: "lasted", number: true, cell: (hold) => (hold.ended ? duration(hold.ended - hold.begun) : <Pill state="throttled" />) },
          { head: "throttled", cell: (hold) => hold.tier },
          { head: "because of", cell: (hold) => `${hold.culprit} ${hold.sentence}` },
          { head: "answer", cell: (hold) => (hold.ended ? "–" : <Act kind="scale" tier={hold.culprit} />) },
        ]}
      />
      <h2>Replays</h2>
      <Table
        label="replays"
        rows={state.replays}
        id={(replay) => String(replay.number)}
        none={unknown ?? "No replay is under way."}
        columns={[
          { head: "replay", cell: (replay) => `${replay.number} of ${replay.tier}` },
          { head: "written", number: true, cell: (replay) => count(replay.rows_out) },
          { head: "left", number: true, cell: (replay) => count(replay.left) },
          { head: "pace", number: true, cell: (replay) => rate(replay.pace) },
        ]}
      />
    </>
  );
}
