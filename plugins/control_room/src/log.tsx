// The end of a log, from whichever host has it; new lines come as they are written.
import { useContext, useEffect, useRef, useState } from "react";
import { address, refusal } from "./live.ts";
import { ConnectionContext } from "./parts.tsx";

const LOOK_MILLISECONDS = 2000;
const AWAY_MILLISECONDS = 5000;
const MOST_CHARACTERS = 1_000_000;
const NEAR_PIXELS = 40;

type Part = { name: string; text: string; position: number; cut: boolean };

/** The lines of a log. `name` is a name of `sluice logs`; a change of `version` begins again. */
export function Log({ name, version = "" }: { name: string; version?: string }) {
  const connection = useContext(ConnectionContext);
  const lines = useRef<HTMLPreElement>(null);
  const atEnd = useRef(true);
  const [shown, setShown] = useState<Part | null>(null);
  const [wrong, setWrong] = useState<string | null>(null);
  useEffect(() => {
    let timer = 0;
    let ended = false;
    let last: Part | null = null;
    const look = async () => {
      let again = LOOK_MILLISECONDS;
      if (!document.hidden) {
        const query = last ? { name: last.name, after: String(last.position) } : { name, after: null };
        const answer = await fetch(address("sluice/log", { ...query, connection })).catch(() => null);
        if (ended) return;
        if (answer?.ok) {
          const part = (await answer.json()) as Part;
          last = last ? { ...part, cut: last.cut, text: (last.text + part.text).slice(-MOST_CHARACTERS) } : part;
          setShown(last);
          setWrong(null);
        } else {
          setWrong(answer ? await refusal(answer) : "Airflow's API server does not answer. The page tries again.");
          again = AWAY_MILLISECONDS;
        }
      }
      if (!ended) timer = setTimeout(() => void look(), again);
    };
    setShown(null);
    setWrong(null);
    atEnd.current = true;
    void look();
    return () => {
      ended = true;
      clearTimeout(timer);
    };
  }, [name, version, connection]);
  useEffect(() => {
    const box = lines.current;
    if (box && atEnd.current) box.scrollTop = box.scrollHeight;
  }, [shown]);
  return (
    <>
      {wrong && <p role="alert" className="warn lines">{wrong}</p>}
      {!shown && !wrong && <p className="none" role="status">Reading the log…</p>}
      {shown?.cut && <p className="soft">Earlier lines did not fit into the answer. <code>sluice logs {shown.name}</code> shows more.</p>}
      {shown && (
        <pre
          ref={lines}
          className="log"
          tabIndex={0}
          role="log"
          aria-label={`log of ${shown.name}`}
          onScroll={({ currentTarget: box }) => {
            atEnd.current = box.scrollHeight - box.scrollTop - box.clientHeight < NEAR_PIXELS;
          }}
        >
          {shown.text || "The log is empty."}
        </pre>
      )}
    </>
  );
}
