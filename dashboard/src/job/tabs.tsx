/** The smaller tabs of a job. */

import { about, bytes, clock, count, duration } from "../core/format";
import { useNow, useResource } from "../core/hooks";
import { isEnded } from "../core/states";
import type { ExceptionEntry, Job, Progress } from "../core/types";
import { Chart, type Series } from "../ui/chart";
import { Badge, Card, Copy, Empty, Facts, Loading, When } from "../ui/parts";
import { lag, ownFrame } from "./view";

export interface Sample {
  sink: string;
  at: number;
  rate: number;
  state: number;
}

export function Batches({ job, progress, samples }: { job: Job; progress: Progress; samples: Sample[] }) {
  const now = useNow();
  const sinks = Object.entries(progress.sinks ?? {}).sort(([a], [b]) => (a < b ? -1 : 1));
  const batches: Series[] = Object.entries(job.checkpoints)
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([name, log]) => ({ name, points: log.recent.map(([, at, ms]) => [at * 1000, ms]) }));
  const over = (value: (s: Sample) => number): Series[] =>
    sinks.map(([name]) => ({ name, points: samples.filter((s) => s.sink === name).map((s) => [s.at, value(s)]) }));
  const running = !isEnded(job.status);
  return (
    <>
      <div className="columns">
        <Card title="Duration of batches">
          <Chart series={batches} format={duration} axis={about} label="Duration of batches over time" />
        </Card>
        {running && (
          <Card title="Rows per second" aside={<span className="muted">since this page was opened</span>}>
            <Chart series={over((s) => s.rate)} format={count} label="Rows per second during a batch" />
          </Card>
        )}
        {running && samples.some((s) => s.state > 0) && (
          <Card title="Rows of state" aside={<span className="muted">since this page was opened</span>}>
            <Chart series={over((s) => s.state)} format={count} label="Rows of state" />
          </Card>
        )}
      </div>
      <Card title="Queries" flush>
        <table className="rows">
          <thead>
            <tr>
              <th scope="col">Sink</th>
              <th scope="col" className="right">Batch</th>
              <th scope="col" className="right">Took</th>
              <th scope="col" className="right">Rows read</th>
              <th scope="col" className="right wide">Rows/s</th>
              <th scope="col" className="right wide">State rows</th>
              <th scope="col" className="right wide">Watermark lag</th>
            </tr>
          </thead>
          <tbody>
            {sinks.map(([name, s]) => {
              const behind = lag(s.watermark, running ? now : (job.ended_at ?? 0) * 1000);
              return (
                <tr key={name}>
                  <td className="name">{name}</td>
                  <td className="right num">{s.batch ?? "–"}</td>
                  <td className="right num">{s.duration_ms === undefined ? "–" : duration(s.duration_ms)}</td>
                  <td className="right num">{count(s.rows)}</td>
                  <td className="right num wide">{count(s.rows_per_second)}</td>
                  <td className="right num wide">{count(s.state_rows)}</td>
                  <td className="right num wide">{behind === undefined ? "–" : duration(behind)}</td>
                </tr>
              );
            })}
          </tbody>
        </table>
      </Card>
    </>
  );
}

export function Exceptions({ job }: { job: Job }) {
  if (!job.exceptions.length) return <Card><Empty>No failures.</Empty></Card>;
  return (
    <>
      {[...job.exceptions].reverse().map((e, i) => (
        <Card
          key={i}
          title={
            <>
              {e.kind}
              {e.vertex && <span className="muted"> in {e.vertex}</span>}
            </>
          }
          aside={<span className="muted"><When ms={e.at * 1000} /> · attempt {e.attempt}</span>}
        >
          <ExceptionBody of={e} />
        </Card>
      ))}
    </>
  );
}

function ExceptionBody({ of }: { of: ExceptionEntry }) {
  const frame = of.traceback ? ownFrame(of.traceback) : undefined;
  return (
    <>
      <pre className="message" tabIndex={0}>{of.message}</pre>
      {frame && <p>Your code: <code>{frame}</code></p>}
      <p className="labels">
        {of.root_cause && <code>{of.root_cause}</code>}
        {Object.entries(of.labels ?? {}).map(([key, value]) => (
          <code key={key}>
            {key}={value}
          </code>
        ))}
      </p>
      {of.traceback && (
        <details>
          <summary>Traceback</summary>
          <pre className="code" tabIndex={0}>{of.traceback}</pre>
        </details>
      )}
    </>
  );
}

interface Checkpoints {
  counts: { completed: number; failed: number; in_progress: number; restored: number };
  history: {
    id: number;
    status: string;
    is_savepoint: boolean;
    latest_ack_timestamp: number;
    end_to_end_duration: number;
    checkpointed_size: number;
    external_path?: string;
  }[];
}

export function CheckpointsTab({ job }: { job: Job }) {
  const { data, error } = useResource<Checkpoints>(`jobs/${job.job_id}/checkpoints`, isEnded(job.status) ? 0 : 3000);
  if (!data) return <Loading error={error} />;
  const places: [string, string][] = [["Last savepoint", job.savepoint], ["Kept checkpoint", job.checkpoint]];
  return (
    <>
      <Card>
        <Facts
          of={[
            ["Completed", count(data.counts.completed)],
            ["Failed", count(data.counts.failed)],
            ["Restored", count(data.counts.restored)],
            ...places
              .filter(([, place]) => place)
              .map(([name, place]): [string, React.ReactNode] => [name, <span className="wrap"><code>{place}</code> <Copy text={place} /></span>]),
          ]}
        />
      </Card>
      <Card title="Latest" flush>
        {data.history.length ? (
          <table className="rows">
            <thead>
              <tr>
                <th scope="col">Id</th>
                <th scope="col">Kind</th>
                <th scope="col">State</th>
                <th scope="col" className="wide">At</th>
                <th scope="col" className="right">Took</th>
                <th scope="col" className="right wide">Size</th>
              </tr>
            </thead>
            <tbody>
              {data.history.map((c) => (
                <tr key={`${c.id}-${c.is_savepoint}-${c.latest_ack_timestamp}`} title={c.external_path}>
                  <td className="num">{c.id}</td>
                  <td>{c.is_savepoint ? "savepoint" : "batch"}</td>
                  <td>{c.status.toLowerCase().replace("_", " ")}</td>
                  <td className="wide muted">{c.latest_ack_timestamp > 0 ? clock(c.latest_ack_timestamp) : "–"}</td>
                  <td className="right num">{duration(c.end_to_end_duration)}</td>
                  <td className="right num wide">{c.checkpointed_size > 0 ? bytes(c.checkpointed_size) : "–"}</td>
                </tr>
              ))}
            </tbody>
          </table>
        ) : (
          <Empty>No batch has been committed yet.</Empty>
        )}
      </Card>
    </>
  );
}

export function AttemptsTab({ job }: { job: Job }) {
  const now = useNow();
  const past = job.attempts.map((a) => ({ ...a, running: false }));
  const current = job.attempt && !past.some((a) => a.number === job.attempt) && job.started_at
    ? [{ number: job.attempt, started_at: job.started_at, ended_at: job.ended_at, engine_id: job.engine_id, endpoint: "", running: !isEnded(job.status) }]
    : [];
  const all = [...current, ...past.reverse()];
  if (!all.length) return <Card><Empty>No attempt has started yet.</Empty></Card>;
  return (
    <Card flush>
      <table className="rows">
        <thead>
          <tr>
            <th scope="col">Attempt</th>
            <th scope="col">Engine</th>
            <th scope="col" className="wide">Started</th>
            <th scope="col" className="right">Duration</th>
            <th scope="col">Reason for its end</th>
          </tr>
        </thead>
        <tbody>
          {all.map((a) => {
            const failure = job.exceptions.find((e) => e.attempt === a.number);
            return (
              <tr key={a.number}>
                <td className="num">{a.number}</td>
                <td><code>{a.engine_id || "–"}</code></td>
                <td className="wide muted"><When ms={a.started_at * 1000} /></td>
                <td className="right num">{duration((a.ended_at ? a.ended_at * 1000 : now) - a.started_at * 1000)}</td>
                <td className="wrap">{failure ? `${failure.kind}: ${failure.message.slice(0, 160)}` : a.running ? "it runs" : job.attempt === a.number ? job.status.toLowerCase() : "–"}</td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </Card>
  );
}

export function StoryTab({ job }: { job: Job }) {
  const chapters = job.story.chapters;
  return (
    <Card>
      {job.story.left_out > 0 && <p className="muted">{job.story.left_out} earlier ones are left out.</p>}
      <ol className="story">
        {chapters.map((c, i) => {
          const next = chapters[i + 1];
          const until = next ? next.at : isEnded(c.status) ? undefined : Date.now() / 1000;
          return (
            <li key={i}>
              <Badge status={c.status} />
              <div>
                <p>{c.cause || "\u00a0"}</p>
                <small className="muted">
                  <When ms={c.at * 1000} />
                  {until !== undefined && ` · for ${duration((until - c.at) * 1000)}`}
                  {c.attempt > 0 && ` · attempt ${c.attempt}`} · epoch {c.epoch}
                </small>
              </div>
            </li>
          );
        })}
      </ol>
    </Card>
  );
}

export function ConfigurationTab({ job }: { job: Job }) {
  const settings = Object.entries(job.graph.settings ?? {}).filter(([key]) => key !== "spark" && key !== "artifacts");
  const spark = Object.entries((job.graph.settings?.spark as Record<string, string> | undefined) ?? {});
  const graph = JSON.stringify(job.graph, null, 2);
  return (
    <>
      <div className="columns">
        <Card title="Settings">
          <Facts of={settings.map(([key, value]) => [key.replaceAll("_", " "), <span className="wrap">{typeof value === "object" ? JSON.stringify(value) : String(value)}</span>])} />
        </Card>
        <Card title="Spark">
          {spark.length ? <Facts of={spark.map(([key, value]) => [key, <span className="wrap">{String(value)}</span>])} /> : <Empty>The job has no Spark settings.</Empty>}
        </Card>
      </div>
      <Card title="Graph" aside={<Copy text={graph} />}>
        <pre className="code" tabIndex={0}>{graph}</pre>
      </Card>
    </>
  );
}
