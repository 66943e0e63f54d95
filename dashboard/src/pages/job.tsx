import { useCallback, useEffect, useRef, useState } from "react";
import { count, duration } from "../core/format";
import { useNow, useResource, useTitle } from "../core/hooks";
import { connection, openStream, type StreamHandler } from "../core/live";
import { isEnded } from "../core/states";
import type { Job, Progress, WhoAmI } from "../core/types";
import { Actions } from "../job/actions";
import { GraphTab } from "../job/graph-tab";
import { Logs } from "../job/logs";
import { AttemptsTab, Batches, CheckpointsTab, ConfigurationTab, Exceptions, StoryTab, type Sample } from "../job/tabs";
import { ownFrame } from "../job/view";
import { Badge, Copy, Loading, Trouble } from "../ui/parts";

const MOST_SAMPLES = 600;

export function JobPage({ id, tab, who, query }: { id: string; tab: string; who: WhoAmI; query: URLSearchParams }) {
  const { data: job, error, reload } = useResource<Job>(`jobs/${id}/execution-graph`, 10_000);
  const live = useLiveJob(id, reload);
  const now = useNow();
  useTitle(job?.name ?? "Job");
  if (!job) return <Loading error={error} />;
  const progress = live.progress ?? job.progress;
  const stream = job.mode === "streaming";
  const tabs: [string, string, number?][] = [
    ["graph", "Graph"],
    ...(stream ? ([["batches", "Batches"], ["checkpoints", "Checkpoints"]] as [string, string][]) : []),
    ["exceptions", "Exceptions", job.exceptions.length],
    ["logs", "Logs"],
    ["attempts", "Attempts"],
    ["story", "Story"],
    ["configuration", "Configuration"],
  ];
  const rows = Object.values(progress.sinks ?? {}).reduce((n, s) => n + (s.rows ?? 0), 0) || job.graph.vertices.filter((v) => v.kind === "sink").reduce((n, v) => n + (job.rows[v.name] ?? 0), 0);
  return (
    <>
      <header className="job-head">
        <p className="crumbs">
          <a href="#/jobs">Jobs</a> / <code>{id}</code> <Copy text={id} />
        </p>
        <div className="job-title">
          <h1>{job.name}</h1>
          <Badge status={job.status} />
          <div className="page-aside">
            <Actions job={job} who={who} onDone={reload} />
          </div>
        </div>
        <dl className="strip">
          <Fact name="Mode" value={job.mode} />
          <Fact name="Owner" value={job.owner} />
          <Fact name="Duration" value={duration((job.ended_at ? job.ended_at * 1000 : now) - job.submitted_at * 1000)} />
          <Fact name={stream ? "Rows read" : "Rows written"} value={rows ? count(rows) : "–"} />
          <Fact name="Attempt" value={job.attempt || "–"} />
          <Fact name="Restarts" value={job.restarts} />
          <Fact name="Engine" value={job.engine_id ? <code>{job.engine_id.slice(0, 8)}</code> : "–"} />
          {job.resumes && <Fact name="Resumed from" value={<a href={`#/jobs/${job.resumes}`}>{job.resumes.slice(0, 8)}</a>} />}
        </dl>
      </header>
      <Trouble text={error} />
      {job.failure && <FailurePanel job={job} />}
      {job.status === "CREATED" && <p className="why">The job is waiting for a slot. <a href="#/queue">Queue</a></p>}
      <nav className="tabs" aria-label="Parts of the job">
        {tabs.map(([key, name, number]) => (
          <a key={key} href={`#/jobs/${id}/${key}`} aria-current={tab === key ? "page" : undefined}>
            {name}
            {number ? <b className="pill">{number}</b> : null}
          </a>
        ))}
      </nav>
      {tab === "graph" && <GraphTab job={job} progress={progress} chosen={query.get("vertex") ?? ""} />}
      {tab === "batches" && <Batches job={job} progress={progress} samples={live.samples} />}
      {tab === "checkpoints" && <CheckpointsTab job={job} />}
      {tab === "exceptions" && <Exceptions job={job} />}
      {tab === "logs" && <Logs id={id} running={!isEnded(job.status)} news={live.lines} />}
      {tab === "attempts" && <AttemptsTab job={job} />}
      {tab === "story" && <StoryTab job={job} />}
      {tab === "configuration" && <ConfigurationTab job={job} />}
    </>
  );
}

function Fact({ name, value }: { name: string; value: React.ReactNode }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{value}</dd>
    </div>
  );
}

function FailurePanel({ job }: { job: Job }) {
  const failure = job.failure!;
  const frame = failure.traceback ? ownFrame(failure.traceback) : undefined;
  return (
    <section className="failure" aria-label="Failure">
      <p>
        <b>{failure.kind}</b>
        {failure.vertex && (
          <>
            {" "}
            in <a href={`#/jobs/${job.job_id}/graph?vertex=${encodeURIComponent(failure.vertex)}`}>{failure.vertex}</a>
          </>
        )}
        {frame && (
          <>
            {" "}
            at <code>{frame}</code>
          </>
        )}
      </p>
      <pre tabIndex={0}>{failure.message}</pre>
      <p>
        <a href={`#/jobs/${job.job_id}/exceptions`}>Exceptions</a> · <a href={`#/jobs/${job.job_id}/logs`}>Logs</a>
      </p>
    </section>
  );
}

interface LiveJob {
  progress: Progress | undefined;
  samples: Sample[];
  /** Counts what was written, so that whoever shows it knows of news. */
  lines: number;
}

/** The event stream of one job. */
function useLiveJob(id: string, reload: () => void): LiveJob {
  const [state, setState] = useState<LiveJob>({ progress: undefined, samples: [], lines: 0 });
  const batches = useRef(new Map<string, number>());
  const take = useCallback((progress: Progress, at: number) => {
    const fresh: Sample[] = [];
    for (const [sink, s] of Object.entries(progress.sinks ?? {})) {
      if (s.batch === undefined || batches.current.get(sink) === s.batch) continue;
      batches.current.set(sink, s.batch);
      fresh.push({ sink, at: at * 1000, rate: s.rows_per_second ?? 0, state: s.state_rows ?? 0 });
    }
    setState((known) => ({ ...known, progress, samples: fresh.length ? [...known.samples, ...fresh].slice(-MOST_SAMPLES) : known.samples }));
  }, []);
  useEffect(() => {
    let over = false;
    const handle: StreamHandler = (kind, data) => {
      if (kind === "log") setState((known) => ({ ...known, lines: known.lines + 1 }));
      if (data.progress) take(data.progress as Progress, data.at as number);
      if (kind === "state" || kind === "lost") reload();
      if ((kind === "state" || kind === "snapshot") && isEnded(String(data.status))) {
        // The node ends the stream here; there is nothing to come back for.
        over = true;
        setState((known) => ({ ...known, progress: undefined }));
        close();
        setTimeout(reload, 1500); // row counts come a moment after the end
      }
    };
    const close = openStream(`jobs/${id}/events?logs=true`, ["snapshot", "state", "progress", "log", "lost"], handle, () => {
      if (!over) connection.set("live");
    });
    return close;
  }, [id, reload, take]);
  return state;
}
