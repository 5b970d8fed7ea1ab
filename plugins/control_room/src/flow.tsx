// The view Flow: tiers and streams as a graph; where it is narrow, as a list.
import { useEffect, useRef, useState } from "react";
import { boxes, type Edge, type Graph, graph, spark } from "./graph.ts";
import { Act, Pill, Runbooks, To } from "./parts.tsx";
import { Sources } from "./sources.tsx";
import type { Series, State, Tier } from "./state.ts";
import { count, duration, latency, rate, tone, workers } from "./words.ts";

const HOUR = { width: 64, height: 14 };
const SIZES = { width: 244, height: 266, gap: 96, row: 24, margin: 6 };

/** What an edge shows: the rate, and the lag of its reader. */
function figures(edge: Edge, tiers: Map<string, Tier>): { rate: string; lag: string | null; late: boolean } {
  const writer = edge.from === null ? undefined : tiers.get(edge.from);
  const reader = edge.to === null ? undefined : tiers.get(edge.to);
  return {
    rate: rate(reader ? reader.input_rates[edge.stream] : writer?.output_rates[edge.stream]),
    lag: reader ? `lag ${count(reader.input_lags[edge.stream])}` : null,
    late: reader?.pressure != null,
  };
}

function Spark({ name, series, values }: { name: string; series: Series | undefined; values: keyof Series }) {
  const line = spark(series?.[values] ?? [], 92, 22);
  return (
    <figure className="spark">
      <svg viewBox="-1 -1 94 24" preserveAspectRatio="none" role="img" aria-label={`${name} in the last hour`}><path d={line} /></svg>
      <figcaption>{name}</figcaption>
    </figure>
  );
}

/** A tier; `alone` on its own page, which has its name and more room. */
export function TierCard({ tier, state, alone = false }: { tier: Tier; state: State; alone?: boolean }) {
  const series = state.last_hour?.tiers[tier.name];
  const beside = [
    tier.next === null ? null : `next ${tier.next} (${tier.phase})`,
    tier.standby === null ? null : `standby ${tier.standby}`,
  ].filter(Boolean);
  const continued = tier.starved ?? (tier.state === "running" ? null : tier.sentence);
  const trouble = tier.error ?? tier.hung ?? (continued && `${tier.name} ${continued}`);
  return (
    <article className={`card tier ${tier.pressure ? "late" : ""}`} aria-label={`tier ${tier.name}`}>
      <header>
        {!alone && <h2><To of="tiers" name={tier.name}>{tier.name}</To></h2>}
        <Pill state={tier.state} />
      </header>
      <p className="soft">{tier.mode} · inc. {tier.incarnation ?? "–"}{beside.length > 0 && ` · ${beside.join(" · ")}`}</p>
      <dl>
        <dt>in</dt><dd>{rate(tier.rate_in)}</dd>
        <dt>out</dt><dd>{rate(tier.rate_out)}</dd>
        <dt title="latency of the median record">p50</dt><dd>{latency(tier.latency_ms)}</dd>
        <dt title="latency of the slowest record in a hundred">p99</dt><dd>{latency(tier.latency_p99_ms)}</dd>
        <dt>last gap</dt><dd>{duration(tier.gap_seconds)}</dd>
      </dl>
      <p>
        {workers(tier.workers.map((worker) => worker.state), tier.light)}
        {tier.driver.host && <> · driver <To of="logs" name={tier.name} title={`log of the driver of ${tier.name}`}>{tier.driver.host}</To></>}
      </p>
      <div className="messages">
        {tier.held_for !== null && <p className="warn">throttled to {rate(tier.admitted)} for {tier.held_for}</p>}
        {tier.pressure !== null && <p className="warn clip" title={tier.pressure}>{tier.name} {tier.pressure}</p>}
        {tier.drift && <p className="warn clip" title={tier.drift}>{tier.name} {tier.drift}</p>}
        {trouble && <p className={`clip ${tone(tier.state) === "calm" ? "soft" : "warn"}`} title={trouble}>{trouble}</p>}
        {tier.scaler && (
          <p className="soft clip" title={`${tier.scaler.mode}: ${tier.scaler.reason}`}>
            scaler wants {tier.scaler.wanted} ({tier.scaler.mode}): {tier.scaler.reason}
          </p>
        )}
      </div>
      <div className="sparks"><Spark name="rate" series={series} values="rate_in" /><Spark name="lag" series={series} values="lag" /><Spark name="latency" series={series} values="latency_ms" /></div>
      <div className="buttons">
        {!tier.light && <Act kind="scale" tier={tier.name} />}
        <Act kind="migrate" tier={tier.name} />
        {tier.state === "paused" && <Act kind="resume" tier={tier.name} />}
        {tier.state === "running" && <Act kind="pause" tier={tier.name} />}
        {tier.state === "running" && tier.release !== null && <Act kind="upgrade" tier={tier.name} />}
        {alone && !tier.light && <Act kind="burst" tier={tier.name} />}
        {alone && <Act kind="replay" tier={tier.name} />}
        {alone && state.shares.some((share) => share.tenant === tier.name && share.extra > 0) && <Act kind="leave" tier={tier.name} />}
      </div>
    </article>
  );
}

function Drawing({ drawn, tiers, state }: { drawn: Graph; tiers: Map<string, Tier>; state: State }) {
  const placed = boxes(drawn.columns, SIZES);
  const ends = (edge: Edge) => {
    const from = edge.from === null ? undefined : placed.of.get(edge.from);
    const to = edge.to === null ? undefined : placed.of.get(edge.to);
    const y1 = from ? from.y + from.height / 2 : to!.y + to!.height / 2;
    const y2 = to ? to.y + to.height / 2 : from!.y + from!.height / 2 + 60;
    const x1 = from ? from.x + from.width : SIZES.margin;
    const x2 = to ? to.x : from!.x + from!.width + SIZES.gap - 12;
    return { x1, y1, x2, y2 };
  };
  return (
    <div className="drawing" style={{ width: placed.width, height: placed.height }}>
      <svg width={placed.width} height={placed.height} aria-hidden="true">
        <defs>
          <marker id="sluice-tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">
            <path d="M0,0L8,4L0,8z" />
          </marker>
        </defs>
        {drawn.edges.map((edge) => {
          const { x1, y1, x2, y2 } = ends(edge);
          const shown = figures(edge, tiers);
          const bend = (x2 - x1) / 2;
          const x = x2 - SIZES.gap / 2 + 2;
          // the words and the last hour stand on the side from which the line does not come
          const [name, figure, lag, hour] = y2 > y1 ? [16, 31, 46, 54] : y2 < y1 ? [-37, -22, -7, -66] : [-22, -7, 18, 26];
          const rates = state.last_hour?.streams[edge.to === null ? edge.stream : `${edge.stream} ${edge.to}`] ?? [];
          return (
            <g key={`${edge.from} ${edge.stream} ${edge.to}`} className={shown.late ? "late" : undefined}>
              <path className="edge" d={`M${x1},${y1}C${x1 + bend},${y1} ${x2 - bend},${y2} ${x2},${y2}`} markerEnd="url(#sluice-tip)" />
              <text x={x} y={y2 + name!}>{edge.stream}</text>
              <text x={x} y={y2 + figure!} className="strong">{shown.rate}</text>
              {shown.lag && <text x={x} y={y2 + lag!}>{shown.lag}</text>}
              <path className="hour" d={spark(rates, HOUR.width, HOUR.height)} transform={`translate(${x - HOUR.width / 2},${y2 + hour!})`} />
            </g>
          );
        })}
      </svg>
      {[...placed.of].map(([name, box]) => (
        <div key={name} style={{ left: box.x, top: box.y, width: box.width, height: box.height }}>
          <TierCard tier={tiers.get(name)!} state={state} />
        </div>
      ))}
    </div>
  );
}

export function Flow({ state }: { state: State }) {
  const frame = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const observer = new ResizeObserver(([entry]) => setWidth(entry!.contentRect.width));
    observer.observe(frame.current!);
    return () => observer.disconnect();
  }, []);
  const tiers = new Map(state.tiers.map((tier) => [tier.name, tier]));
  const drawn = graph(state.tiers);
  const wide = width >= boxes(drawn.columns, SIZES).width;
  return (
    <div ref={frame} className="flow">
      <Runbooks label="Runbooks for the whole pipeline" names={["upgrade_pipeline", "drain_to_empty", "pause_pipeline"]} />
      {state.tiers.length === 0 && (
        <p className="none">No tier is published. <code>sluice publish</code> publishes the pipeline of the site file.</p>
      )}
      {wide ? (
        <Drawing drawn={drawn} tiers={tiers} state={state} />
      ) : (
        <ol className="list">
          {state.tiers.map((tier) => (
            <li key={tier.name}>
              {drawn.edges.filter((edge) => edge.to === tier.name).map((edge) => {
                const shown = figures(edge, tiers);
                return (
                  <p key={edge.stream} className={`stream ${shown.late ? "warn" : ""}`}>
                    ↓ {edge.from && `${edge.from} · `}{edge.stream} · <b>{shown.rate}</b>{shown.lag && ` · ${shown.lag}`}
                  </p>
                );
              })}
              <TierCard tier={tier} state={state} />
            </li>
          ))}
        </ol>
      )}
      <Sources state={state} />
    </div>
  );
}
