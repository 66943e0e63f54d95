import { useEffect, useRef, useState } from "react";
import { messageOf, sendYaml } from "../core/api";
import { useTitle } from "../core/hooks";
import { go } from "../core/router";
import type { JobGraph, Problem } from "../core/types";
import { Graph } from "../ui/graph";
import { Card, Page, Trouble } from "../ui/parts";
import { toast } from "../ui/toasts";

const KEPT = "firesteel.draft";
const EXAMPLE = `name: my_pipeline
mode: batch
vertices:
  - name: numbers
    kind: sql
    query: SELECT id, id * id AS square FROM range(100)
  - name: squares
    kind: sink
    input: numbers
    format: parquet
    path: /tmp/squares
    mode: overwrite
`;

interface Checked {
  problems: Problem[];
  graph: JobGraph | null;
}

export function Submit() {
  useTitle("Submit");
  const [text, setText] = useState(() => sessionStorage.getItem(KEPT) ?? EXAMPLE);
  const [checked, setChecked] = useState<Checked>();
  const [error, setError] = useState("");
  const [busy, setBusy] = useState(false);
  const [over, setOver] = useState(false);
  const field = useRef<HTMLTextAreaElement>(null);
  useEffect(() => {
    sessionStorage.setItem(KEPT, text);
    const control = new AbortController();
    const timer = setTimeout(() => {
      sendYaml<Checked>("jobs/check", text, control.signal).then(
        (found) => {
          setChecked(found);
          setError("");
        },
        (failed: unknown) => {
          if (!control.signal.aborted) setError(messageOf(failed));
        },
      );
    }, 500);
    return () => {
      clearTimeout(timer);
      control.abort();
    };
  }, [text]);
  const submit = async (): Promise<void> => {
    setBusy(true);
    try {
      const made = await sendYaml<{ jobId: string }>("jobs", text);
      toast("The job was accepted.", "done");
      go(`#/jobs/${made.jobId}`);
    } catch (failed) {
      setError(messageOf(failed));
      setBusy(false);
    }
  };
  const take = async (file: File | undefined): Promise<void> => {
    setOver(false);
    if (!file) return;
    if (!/\.(ya?ml|json)$/i.test(file.name)) setError(`${file.name} is not YAML; firesteel run takes SQL, Python and scripts.`);
    else if (file.size > 1_000_000) setError(`${file.name} is larger than this page takes; firesteel run takes it.`);
    else setText(await file.text());
  };
  const jump = (line: number): void => {
    const area = field.current;
    if (!area) return;
    const lines = text.split("\n");
    const start = lines.slice(0, line - 1).reduce((n, l) => n + l.length + 1, 0);
    area.focus();
    area.setSelectionRange(start, start + (lines[line - 1]?.length ?? 0));
  };
  const problems = [...(checked?.problems ?? [])].sort((a, b) => (a.line ?? 0) - (b.line ?? 0));
  const marks = new Map<number, Problem>();
  for (const p of problems) if (p.line !== null && !marks.has(p.line)) marks.set(p.line, p);
  const wrong = problems.some((p) => p.certain);
  return (
    <Page
      title="Submit"
      aside={
        <button className="primary" disabled={busy || wrong || !checked} onClick={() => void submit()}>
          {busy ? "Submitting…" : "Run this job"}
        </button>
      }
    >
      <div className="columns submit">
        <Card
          title="Pipeline"
          aside={
            <label className="file">
              Open a file
              <input type="file" accept=".yaml,.yml,.json" onChange={(e) => void take(e.target.files?.[0])} />
            </label>
          }
          flush
        >
          <div
            className={over ? "editor over" : "editor"}
            onDragOver={(e) => {
              e.preventDefault();
              setOver(true);
            }}
            onDragLeave={() => setOver(false)}
            onDrop={(e) => {
              e.preventDefault();
              void take(e.dataTransfer.files[0]);
            }}
          >
            <div className="gutter" aria-hidden="true">
              {text.split("\n").map((_, i) => {
                const mark = marks.get(i + 1);
                return (
                  <span key={i} className={mark ? (mark.certain ? "mark-bad" : "mark-warn") : ""} title={mark?.message}>
                    {i + 1}
                  </span>
                );
              })}
            </div>
            <textarea
              ref={field}
              aria-label="Pipeline as YAML"
              spellCheck={false}
              wrap="off"
              rows={Math.max(18, text.split("\n").length)}
              value={text}
              onChange={(e) => setText(e.target.value)}
            />
          </div>
        </Card>
        <div>
          <Trouble text={error} />
          <Card title={!checked ? "Checking" : problems.length ? (problems.length === 1 ? "1 problem" : `${problems.length} problems`) : "No problems"}>
            {problems.length ? (
              <ul className="problems">
                {problems.map((p, i) => (
                  <li key={i} className={p.certain ? "bad" : "warn"}>
                    {p.line !== null && (
                      <button className="link" onClick={() => jump(p.line!)}>
                        line {p.line}
                      </button>
                    )}{" "}
                    {p.vertex && <b>{p.vertex}</b>} {p.field && <code>{p.field}</code>} {p.message}
                    {p.fix && <span className="muted"> — {p.fix}</span>}
                  </li>
                ))}
              </ul>
            ) : (
              <p className="muted">{checked ? "Nothing is stored or run until you submit it." : "The first check takes a moment."}</p>
            )}
          </Card>
          {checked?.graph && (
            <Card title="Plan">
              <Graph nodes={checked.graph.vertices.map((v) => ({ name: v.name, kind: v.kind, inputs: v.inputs ?? (v.input ? [v.input] : []) }))} />
            </Card>
          )}
        </div>
      </div>
    </Page>
  );
}
