// The view Hosts: what each host runs, and its state.
import { Author } from "./changes.tsx";
import { load, warnings } from "./notes.ts";
import { Act, Pill, Runbooks, Sentence, To } from "./parts.tsx";
import type { Host, Slot, State } from "./state.ts";
import { clock } from "./words.ts";

const COLOURS = 8;

function SlotBox({ slot, colour }: { slot: Slot; colour: number }) {
  const waits = slot.state === "active" ? "" : "hatched";
  return (
    <li className={`slot colour${colour} ${waits}`} title={`${slot.id}: ${slot.state}`}>
      <span>{slot.tenant}</span>
      {waits && <small>{slot.state}</small>}
    </li>
  );
}

type Card = { host: Host; state: State; colours: Map<string, number>; alone?: boolean };

/** A host; `alone` on its own page, which has its name. */
export function HostCard({ host, state, colours, alone = false }: Card) {
  const slots = state.slots.filter((slot) => slot.host === host.name);
  const change = state.changes.find((each) => each.id === host.by);
  const out = host.state !== "up";
  return (
    <article className="card host" aria-label={`host ${host.name}`}>
      <header>
        {!alone && <h2><To of="hosts" name={host.name}>{host.name}</To></h2>}
        <Pill state={host.state} />
      </header>
      <p className="soft">
        {[host.zone, host.rack, ...host.labels, `${host.cpu} CPU`, `${Math.round(host.memory / 1024)} GiB`, load(host)].filter(Boolean).join(" · ")}
      </p>
      {out && host.by && <p className="soft">{host.state} by <Author by={change?.by ?? host.by} /> since {clock(host.since)}</p>}
      {slots.length > 0 ? (
        <ul className="slots" aria-label={`slots of ${host.name}`}>
          {slots.map((slot) => <SlotBox key={slot.id} slot={slot} colour={colours.get(slot.tenant) ?? 0} />)}
        </ul>
      ) : <p className="none">no slot</p>}
      {host.drivers.length > 0 && <p className="soft">{host.drivers.join(", ")}</p>}
      {warnings(host, state.tiers).map((note) => <p key={note} className="warn"><Sentence text={note} /></p>)}
      <div className="buttons">
        {host.state === "up" && <><Act kind="drain" host={host.name} /><Act kind="cordon" host={host.name} /><Act kind="reboot" host={host.name} /></>}
        {(host.state === "drained" || host.state === "cordoned" || host.quarantine) && <Act kind="return" host={host.name} />}
        {host.state === "cordoned" && <Act kind="drain" host={host.name} />}
        {host.zone === "ec2" && <Act kind="leave" />}
        {host.state === "lost" && <Act kind="write-off" host={host.name} />}
        {alone && host.state === "up" && <Act kind="canary" host={host.name} />}
        {alone && host.zone !== "ec2" && <Act kind="decommission" host={host.name} />}
      </div>
    </article>
  );
}

/** A colour for each tenant. */
export function coloursOf(state: State): Map<string, number> {
  const tenants = [...new Set([...state.tiers.map((tier) => tier.name), ...state.slots.map((slot) => slot.tenant)])];
  return new Map(tenants.map((tenant, number) => [tenant, number % COLOURS]));
}

export function Hosts({ state }: { state: State }) {
  const colours = coloursOf(state);
  if (state.hosts.length === 0) {
    return <p className="none">No host has registered. <code>sluice agent --host NAME</code> registers one.</p>;
  }
  return (
    <>
      <Runbooks label="Runbooks for several hosts" names={["rolling_reboot", "rebalance_workers", "new_hosts", "game_day"]} />
      <div className="cards">
        {state.hosts.map((host) => (
          <HostCard key={host.name} host={host} colours={colours} state={state} />
        ))}
      </div>
    </>
  );
}
