import { clock, count, duration } from "../core/format";
import { useNow, useResource } from "../core/hooks";
import { replaceQuery } from "../core/router";
import { tone, word } from "../core/states";
import type { Job, Progress } from "../core/types";
import { Graph } from "../ui/graph";
import { Icon } from "../ui/icons";
import { Card, Facts } from "../ui/parts";
import { graphNodes, spans } from "./view";

interface Operators {
  sinks: { vertex: string; operators: { id: number; name: string; description: string; rows: number | null; metrics: Record<string, string> }[] }[];
}

const SHOWN_APART = new Set(["name", "kind", "description", "inputs", "input", "query", "options", "cache"]);

export function GraphTab({ job, progress, chosen }: { job: Job; progress: Progress; chosen: string }) {
  const choose = (name: string): void => replaceQuery({ vertex: name === chosen ? "" : name });
  return (
    <div className={chosen ? "graph-and-panel" : "stack"}>
      <div className="stack">
        <Card>
          {job.graph.description && <p className="muted">{job.graph.description}</p>}
          <Graph nodes={graphNodes(job, progress)} chosen={chosen} onChoose={choose} />
        </Card>
        <Timeline job={job} />
      </div>
      {chosen && <VertexPanel job={job} name={chosen} onClose={() => choose(chosen)} />}
    </div>
  );
}

function Timeline({ job }: { job: Job }) {
  const parts = spans(job, useNow());
  const all = parts.reduce((n, p) => n + p.ms, 0);
  if (!all) return null;
  const totals = new Map<string, number>();
  for (const p of parts) totals.set(p.status, (totals.get(p.status) ?? 0) + p.ms);
  return (
    <Card title="Timeline" aside={<a href={`#/jobs/${job.job_id}/story`}>Story</a>}>
      <div className="timeline" role="img" aria-label={parts.map((p) => `${word(p.status)} for ${duration(p.ms)}`).join(", ")}>
        {parts.map((p) => (
          <span key={`${p.status}-${p.from}`} className={`tone-${tone(p.status)}`} style={{ flexGrow: p.ms / all }} title={`${word(p.status)} from ${clock(p.from)}, ${duration(p.ms)}`} />
        ))}
      </div>
      <div className="timeline-key">
        {[...totals].map(([status, ms]) => (
          <span key={status} className={`tone-${tone(status)}`}>
            <span className="dot" />
            {word(status)} <b>{duration(ms)}</b>
          </span>
        ))}
      </div>
    </Card>
  );
}

function VertexPanel({ job, name, onClose }: { job: Job; name: string; onClose: () => void }) {
  const vertex = job.graph.vertices.find((v) => v.name === name);
  const operators = useResource<Operators>(job.mode === "batch" && vertex?.kind === "sink" ? `jobs/${job.job_id}/operators` : null);
  if (!vertex) return null;
  const settings = Object.entries(vertex).filter(([key, value]) => !SHOWN_APART.has(key) && !isNothing(value));
  const options = Object.entries((vertex.options as Record<string, string> | undefined) ?? {});
  const physical = operators.data?.sinks.find((s) => s.vertex === name)?.operators ?? [];
  return (
    <Card
      title={
        <>
          <Icon name={vertex.kind} size={16} /> {name}
        </>
      }
      aside={
        <button className="quiet" onClick={onClose} aria-label="Close">
          <Icon name="close" size={16} />
        </button>
      }
    >
      {vertex.description && <p className="muted">{vertex.description}</p>}
      {vertex.query && <pre className="code" tabIndex={0}>{vertex.query}</pre>}
      <Facts of={settings.map(([key, value]) => [key.replaceAll("_", " "), <span className="wrap">{plain(value)}</span>])} />
      {options.length > 0 && (
        <>
          <h3>Options</h3>
          <Facts of={options.map(([key, value]) => [key, <span className="wrap">{value}</span>])} />
        </>
      )}
      {physical.length > 0 && (
        <>
          <h3>Spark's operators</h3>
          <ol className="operators">
            {physical.map((o) => (
              <li key={o.id} title={o.description}>
                <b>{o.name}</b> {o.rows !== null && <span className="muted">{count(o.rows)} rows</span>}
              </li>
            ))}
          </ol>
        </>
      )}
    </Card>
  );
}

function isNothing(value: unknown): boolean {
  return value === "" || value === null || value === false || (Array.isArray(value) && !value.length) || (typeof value === "object" && value !== null && !Object.keys(value).length);
}

function plain(value: unknown): string {
  if (Array.isArray(value)) return value.map(plain).join(", ");
  return typeof value === "object" && value !== null ? JSON.stringify(value) : String(value);
}
