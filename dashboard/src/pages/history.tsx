import { useCallback, useEffect, useState } from "react";
import { get, messageOf } from "../core/api";
import { duration } from "../core/format";
import { useTitle } from "../core/hooks";
import { wordsOf } from "../core/search";
import { Badge, Card, Empty, JobLink, Loading, Page, ShortId, Trouble, When } from "../ui/parts";

interface Row {
  jid: string;
  name: string;
  jobType: string;
  state: string;
  duration: number;
  "end-time": number;
}

interface HistoryPage {
  jobs: Row[];
  next: number | null;
}

const STATES = ["finished", "failed", "canceled"];

/** Words that are states ask for those, all others for names and ids. */
export function wishOf(text: string): { search: string; state: string } {
  const words = wordsOf(text);
  return { search: words.filter((w) => !STATES.includes(w)).join(" ").slice(0, 200), state: words.filter((w) => STATES.includes(w)).join(",") };
}

export function History() {
  useTitle("History");
  const [rows, setRows] = useState<Row[]>();
  const [next, setNext] = useState<number | null>(null);
  const [error, setError] = useState("");
  const [text, setText] = useState("");
  const more = useCallback(async (before: number | null, wanted: string, signal?: AbortSignal) => {
    const query = new URLSearchParams({ limit: "100" });
    if (before !== null) query.set("before", String(before));
    const { search, state } = wishOf(wanted);
    if (search) query.set("search", search);
    if (state) query.set("state", state);
    try {
      const page = await get<HistoryPage>(`history?${query}`, signal);
      setRows((known) => [...(before === null ? [] : (known ?? [])), ...page.jobs]);
      setNext(page.next);
      setError("");
    } catch (failed) {
      if (!signal?.aborted) setError(messageOf(failed));
    }
  }, []);
  // The node looks through all of them; one search a moment is enough while somebody types.
  useEffect(() => {
    const control = new AbortController();
    const timer = setTimeout(() => void more(null, text, control.signal), text ? 250 : 0);
    return () => {
      clearTimeout(timer);
      control.abort();
    };
  }, [more, text]);
  const shown = rows;
  return (
    <Page title="History" aside={<span className="muted">jobs that have ended, newest first</span>}>
      <div className="filters">
        <input type="search" placeholder="Name, id or state" aria-label="Search ended jobs" value={text} onChange={(e) => setText(e.target.value)} />
      </div>
      <Trouble text={error} />
      {!shown ? (
        !error && <Loading />
      ) : (
        <Card flush>
          {shown.length ? (
            <table className="rows">
              <thead>
                <tr>
                  <th scope="col">Result</th>
                  <th scope="col">Job</th>
                  <th scope="col" className="wide">Ended</th>
                  <th scope="col" className="right">Duration</th>
                </tr>
              </thead>
              <tbody>
                {shown.map((r) => (
                  <tr key={r.jid}>
                    <td><Badge status={r.state} /></td>
                    <td className="name">
                      <JobLink id={r.jid} name={r.name} /> <ShortId id={r.jid} />
                      <span className="note">{r.jobType === "STREAMING" ? "stream" : ""}</span>
                    </td>
                    <td className="wide muted"><When ms={r["end-time"]} /></td>
                    <td className="right num">{duration(r.duration)}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          ) : (
            <Empty>{text ? "No matching jobs." : "No jobs have ended yet."}</Empty>
          )}
        </Card>
      )}
      {next !== null && (
        <p>
          <button onClick={() => void more(next, text)}>Older jobs</button>
        </p>
      )}
    </Page>
  );
}
