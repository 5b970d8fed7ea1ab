// The view Alerts: what is wrong now, what the platform did, what to do, and what is silenced.
import { useContext, useState } from "react";
import { ask } from "./live.ts";
import { ActingContext, ConnectionContext, Pill, Sentence, Table, To } from "./parts.tsx";
import type { Detail } from "./route.ts";
import type { Alert, State } from "./state.ts";
import { clock, duration } from "./words.ts";

/** The alerts that a person was told, and that last. */
export function firing(state: State): Alert[] {
  return state.alerts.alerts.filter((alert) => alert.state === "told");
}

/** For how long the page silences an alert. */
const HOURS = [1, 2, 8];

/** Silence an alert; the command for users without buttons. */
function Silence({ of }: { of: string }) {
  const { actions } = useContext(ActingContext);
  const connection = useContext(ConnectionContext);
  const [hours, setHours] = useState(2);
  const [wrong, setWrong] = useState<string | null>(null);
  if (actions.length === 0) return <code>sluice alert silence {of} --for 2h</code>;
  return (
    <div className="buttons">
      <select aria-label={`hours of the silence of ${of}`} value={hours} onChange={(event) => setHours(Number(event.target.value))}>
        {HOURS.map((each) => <option key={each} value={each}>{each} h</option>)}
      </select>
      <button type="button" aria-label={`Silence ${of}`} onClick={() => void ask("alerts/silence", connection, { key: of, hours }).then(setWrong)}>
        Silence
      </button>
      {wrong && <p role="alert" className="warn">{wrong}</p>}
    </div>
  );
}

/** End a silence; the command for users without buttons. */
function EndSilence({ of }: { of: string }) {
  const { actions } = useContext(ActingContext);
  const connection = useContext(ConnectionContext);
  const [wrong, setWrong] = useState<string | null>(null);
  if (actions.length === 0) return <code>sluice alert unsilence '{of}'</code>;
  return (
    <>
      <button type="button" aria-label={`End silence of ${of}`} onClick={() => void ask("alerts/unsilence", connection, { key: of }).then(setWrong)}>
        End silence
      </button>
      {wrong && <p role="alert" className="warn">{wrong}</p>}
    </>
  );
}

function AlertCard({ alert }: { alert: Alert }) {
  const [of, ...name] = alert.page.split("/");
  return (
    <li className={`card alert ${alert.state === "told" ? alert.severity : ""}`} aria-label={`alert ${alert.key}`}>
      <header>
        <h3>{of ? <To of={of as Detail} name={name.join("/")}>{alert.key}</To> : alert.key}</h3>
        <Pill state={alert.severity} />
      </header>
      <p className="soft">
        since {clock(alert.since)} · {alert.state === "waits" ? "not told yet: it has not lasted long enough" : alert.state}
      </p>
      <dl className="pairs">
        <dt>what happened</dt><dd className="lines"><Sentence text={alert.happened} /></dd>
        <dt>what the platform did</dt><dd><Sentence text={alert.did} /></dd>
        <dt>what to do</dt><dd><Sentence text={alert.do} /></dd>
        {alert.state === "told" && <><dt>to silence it</dt><dd><Silence of={alert.key} /></dd></>}
      </dl>
    </li>
  );
}

function Cards({ alerts, label }: { alerts: Alert[]; label: string }) {
  return <ul className="alerts" aria-label={label}>{alerts.map((alert) => <AlertCard key={alert.key} alert={alert} />)}</ul>;
}

/** The alerts of one page that last; nothing if there is none. */
export function AlertsOf({ state, page }: { state: State; page: string }) {
  const alerts = state.alerts.alerts.filter((alert) => alert.page === page && alert.state !== "waits");
  return alerts.length > 0 ? <><h2>Alerts</h2><Cards alerts={alerts} label="alerts" /></> : null;
}

export function Alerts({ state }: { state: State }) {
  const { alerts, ended, silences, channels } = state.alerts;
  const told = firing(state);
  const others = alerts.filter((alert) => alert.state !== "told");
  const dead = Object.entries(channels).filter(([, health]) => health.failed_since !== null);
  return (
    <>
      {dead.map(([name, health]) => (
        <p key={name} role="alert" className="warn">
          The channel {name} takes no alerts since {clock(health.failed_since)}: {health.error}. Correct <code>alerts</code> in
          the site file, then: <code>sluice alert test {name}</code>
        </p>
      ))}
      <h2>Firing</h2>
      {told.length > 0 ? <Cards alerts={told} label="firing alerts" /> : <p className="none">No alert is firing.</p>}
      {others.length > 0 && (
        <>
          <h2>Not told</h2>
          <Cards alerts={others} label="alerts that are not told" />
        </>
      )}
      <h2>Silences</h2>
      <Table
        label="silences"
        rows={silences}
        id={(silence) => silence.key}
        none="No alert is silenced."
        columns={[
          { head: "alert", cell: (silence) => <b>{silence.key}</b> },
          { head: "until", cell: (silence) => clock(silence.until) },
          { head: "by", cell: (silence) => silence.by },
          { head: "to end it", cell: (silence) => <EndSilence of={silence.key} /> },
        ]}
      />
      <h2>Over</h2>
      <Table
        label="alerts that are over"
        rows={[...ended].reverse()}
        id={(alert) => `${alert.kind}:${alert.subject} ${alert.since}`}
        none="No alert that was told is over."
        columns={[
          { head: "over since", cell: (alert) => clock(alert.gone_at) },
          { head: "lasted", number: true, cell: (alert) => duration((alert.gone_at ?? alert.since) - alert.since) },
          { head: "alert", cell: (alert) => `${alert.kind}:${alert.subject}` },
          { head: "what happened", cell: (alert) => alert.happened },
        ]}
      />
      {Object.keys(channels).length === 0 && (
        <p className="none">
          No channel is named, so alerts are told here and by <code>sluice alert</code> only: add one below <code>alerts:
          channels:</code> in the site file.
        </p>
      )}
    </>
  );
}
