import { useEffect, useMemo, useRef, useState } from "react";
import { getText, messageOf } from "../core/api";
import { bytes } from "../core/format";
import { useInterval, useResource } from "../core/hooks";
import { Card, Empty, Loading, Trouble } from "../ui/parts";

interface Attempts {
  attempts: { attempt: number; logs: { name: string; size: number; modified: number }[] }[];
}

const TAIL = 2000;
const POLL_MS = 1500;

export function Logs({ id, running, news }: { id: string; running: boolean; news: number }) {
  const { data, error, reload } = useResource<Attempts>(`jobs/${id}/attempts`, running ? 5000 : 0);
  const [picked, setPicked] = useState<{ attempt: number; name: string }>();
  const [wanted, setWanted] = useState("");
  const [follow, setFollow] = useState(true);
  const attempts = data?.attempts ?? [];
  const last = attempts[attempts.length - 1];
  useEffect(reload, [news, reload]);
  const chosen = picked ?? (last && { attempt: last.attempt, name: firstWith(last.logs) });
  if (!data) return <Loading error={error} />;
  if (!chosen) return <Card><Empty>No attempt has started yet, so there are no logs.</Empty></Card>;
  const files = attempts.find((a) => a.attempt === chosen.attempt)?.logs ?? [];
  const path = `jobs/${id}/attempts/${chosen.attempt}/logs/${encodeURIComponent(chosen.name)}`;
  return (
    <Card
      title={
        <span className="chips" role="group" aria-label="File">
          {files.map((f) => (
            <button key={f.name} aria-pressed={f.name === chosen.name} onClick={() => setPicked({ ...chosen, name: f.name })}>
              {f.name} <b>{bytes(f.size)}</b>
            </button>
          ))}
        </span>
      }
      aside={
        <span className="inline">
          {attempts.length > 1 && (
            <select aria-label="Attempt" value={chosen.attempt} onChange={(e) => setPicked({ ...chosen, attempt: Number(e.target.value) })}>
              {attempts.map((a) => (
                <option key={a.attempt} value={a.attempt}>
                  attempt {a.attempt}
                </option>
              ))}
            </select>
          )}
          <input type="search" placeholder="Search these lines" aria-label="Search these lines" value={wanted} onChange={(e) => setWanted(e.target.value)} />
          <label>
            <input type="checkbox" checked={follow} onChange={(e) => setFollow(e.target.checked)} /> follow
          </label>
          <a href={`./${path}`} download={`${id.slice(0, 8)}-${chosen.attempt}-${chosen.name}.log`}>
            download
          </a>
        </span>
      }
      flush
    >
      <Lines key={path} path={path} live={running && chosen.attempt === last?.attempt} wanted={wanted} follow={follow} news={news} />
    </Card>
  );
}

/** The last lines of a file; asked for again when there is news, and while it is being written. */
function Lines({ path, live, wanted, follow, news }: { path: string; live: boolean; wanted: string; follow: boolean; news: number }) {
  const [text, setText] = useState<string>();
  const [error, setError] = useState("");
  const [turn, setTurn] = useState(0);
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const control = new AbortController();
    getText(`${path}?tail=${TAIL}`, control.signal).then(
      (found) => {
        setText(found);
        setError("");
      },
      (failed: unknown) => {
        if (!control.signal.aborted) setError(messageOf(failed));
      },
    );
    return () => control.abort();
  }, [path, turn, news]);
  useInterval(() => setTurn((n) => n + 1), live ? POLL_MS : 0);
  const lines = useMemo(() => {
    const all = (text ?? "").split("\n");
    if (all[all.length - 1] === "") all.pop();
    const low = wanted.toLowerCase();
    return low ? all.filter((l) => l.toLowerCase().includes(low)) : all;
  }, [text, wanted]);
  useEffect(() => {
    if (follow && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [lines, follow]);
  if (text === undefined) return <Loading error={error} />;
  return (
    <>
      <Trouble text={error} />
      <div className="log" ref={box} tabIndex={0} role="log" aria-label="Lines of the log" aria-live="off">
        {lines.length ? lines.map((l, i) => <Line key={i} text={l} wanted={wanted} />) : <Empty>{wanted ? "No matching lines." : "The log is empty."}</Empty>}
      </div>
    </>
  );
}

function Line({ text, wanted }: { text: string; wanted: string }) {
  const level = /\b(ERROR|FATAL|Traceback|WARN(?:ING)?)\b/.exec(text)?.[1];
  const kind = level ? (level.startsWith("WARN") ? "line-warn" : "line-bad") : "";
  const at = wanted ? text.toLowerCase().indexOf(wanted.toLowerCase()) : -1;
  return (
    <div className={kind}>
      {at < 0 ? text || "\u00a0" : (
        <>
          {text.slice(0, at)}
          <mark>{text.slice(at, at + wanted.length)}</mark>
          {text.slice(at + wanted.length)}
        </>
      )}
    </div>
  );
}

function firstWith(logs: { name: string; size: number }[]): string {
  return (logs.find((l) => l.size > 0 && l.name !== "events") ?? logs[0])?.name ?? "stdout";
}
