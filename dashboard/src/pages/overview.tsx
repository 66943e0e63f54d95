import { useEffect, useMemo, useState } from "react";
import { get } from "../core/api";
import { ago, count, duration } from "../core/format";
import { useNow, useResource, useTitle } from "../core/hooks";
import { useJobs } from "../core/live";
import { counts } from "../core/search";
import { GROUPS } from "../core/states";
import type { ClusterStatus, Engine, Job, JobRow, WhoAmI } from "../core/types";
import { Badge, Bar, Card, Empty, JobLink, Loading, Page, Trouble } from "../ui/parts";

export function Overview({ who }: { who: WhoAmI }) {
  useTitle("");
  const { rows, loaded, error } = useJobs();
  const engines = useResource<{ engines: Engine[] }>("engines", 5000);
  const status = useResource<ClusterStatus>("cluster/status", 5000);
  const now = useNow();
  const found = useMemo(() => counts(rows), [rows]);
  const failed = useMemo(() => rows.filter((r) => r.status === "FAILED").sort((a, b) => b.changed - a.changed).slice(0, 4), [rows]);
  const changes = useMemo(() => [...rows].sort((a, b) => b.changed - a.changed).slice(0, 8), [rows]);
  const streams = useMemo(() => rows.filter((r) => r.status === "RUNNING" && r.mode === "streaming").slice(0, 6), [rows]);
  const ready = (engines.data?.engines ?? []).filter((e) => e.state === "READY");
  const slots = ready.reduce((n, e) => n + e.slots, 0);
  const taken = slots - ready.reduce((n, e) => n + e.free, 0);
  if (!loaded) return <Page title="Overview"><Loading error={error} /></Page>;
  return (
    <Page title="Overview" aside={status.data && <span className="muted">{status.data.cluster_id} · {status.data.version}</span>}>
      {status.data?.degraded && <Trouble text={`The cluster has no leader: ${status.data.reason}. Running jobs continue.`} />}
      <div className="tiles">
        {GROUPS.map((g) => (
          <a key={g} className={`tile tile-${g}`} href={`#/jobs?state=${g}`}>
            <b>{count(found[g])}</b>
            <span>{g}</span>
          </a>
        ))}
        <a className="tile" href="#/engines">
          <b>
            {taken}
            <small> / {slots}</small>
          </b>
          <span>slots on {ready.length} {ready.length === 1 ? "engine" : "engines"}</span>
          <Bar part={taken} of={slots} label="" />
        </a>
      </div>
      <div className="columns">
        <Card title="Latest failures">
          {failed.length ? failed.map((row) => <FailureLine key={row.id} row={row} now={now} />) : <Empty>No jobs have failed.</Empty>}
        </Card>
        <Card title="Streams">
          {streams.length ? streams.map((row) => <StreamLine key={row.id} row={row} now={now} />) : <Empty>No streams are running.</Empty>}
        </Card>
      </div>
      <Card title="Latest changes" aside={<a href="#/jobs">All jobs</a>} flush>
        {changes.length ? (
          <table className="rows">
            <tbody>
              {changes.map((row) => (
                <tr key={row.id}>
                  <td className="fit">
                    <Badge status={row.status} />
                  </td>
                  <td className="name">
                    <JobLink id={row.id} name={row.name} /> <span className="note">{row.cause ?? ""}</span>
                  </td>
                  {who.owner === "*" && <td className="wide muted">{row.owner}</td>}
                  <td className="right muted">{ago(row.changed, now)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        ) : (
          <Empty>No jobs have been submitted yet.</Empty>
        )}
      </Card>
    </Page>
  );
}

function FailureLine({ row, now }: { row: JobRow; now: number }) {
  const [job, setJob] = useState<Job>();
  useEffect(() => {
    const control = new AbortController();
    get<Job>(`jobs/${row.id}/execution-graph`, control.signal).then(setJob, () => undefined);
    return () => control.abort();
  }, [row.id]);
  return (
    <div className="line">
      <div className="line-head">
        <JobLink id={row.id} name={row.name} />
        <span className="muted">{ago(row.changed, now)}</span>
      </div>
      <p className="clip">
        {job?.failure?.vertex && <b>{job.failure.vertex}: </b>}
        {job?.failure?.message ?? "\u00a0"}
      </p>
    </div>
  );
}

function StreamLine({ row, now }: { row: JobRow; now: number }) {
  const { data: job } = useResource<Job>(`jobs/${row.id}/execution-graph`, 5000);
  const sinks = Object.values(job?.progress.sinks ?? {});
  const rate = sinks.reduce((n, s) => n + (s.rows_per_second ?? 0), 0);
  const longest = Math.max(0, ...sinks.map((s) => s.duration_ms ?? 0));
  return (
    <div className="line">
      <div className="line-head">
        <JobLink id={row.id} name={row.name} />
        <span className="muted">{duration(now - row.submitted)}</span>
      </div>
      <p className="muted">{job ? `${count(rate)} rows/s while at a batch · longest last batch ${duration(longest)}` : "\u00a0"}</p>
    </div>
  );
}
