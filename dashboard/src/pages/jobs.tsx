import { useEffect, useMemo, useRef, useState } from "react";
import { ago, duration } from "../core/format";
import { useNow, useTitle } from "../core/hooks";
import { useJobs } from "../core/live";
import { replaceQuery } from "../core/router";
import { counts, filterFrom, selected, toQuery, type JobFilter, type SortKey } from "../core/search";
import { GROUPS, groupOf } from "../core/states";
import type { JobRow } from "../core/types";
import { Badge, Card, Empty, JobLink, Loading, Page, ShortId, Trouble } from "../ui/parts";

const ROW = 44;
const MORE = 12;

export function Jobs({ query }: { query: URLSearchParams }) {
  useTitle("Jobs");
  const { rows, loaded, error } = useJobs();
  const filter = filterFrom(query);
  const now = useNow();
  // Rows are sorted again when they change, not each second.
  const shown = useMemo(() => selected(rows, filter, Date.now()), [rows, query.toString()]);
  const found = useMemo(() => counts(rows), [rows]);
  const change = (part: Partial<JobFilter>): void => replaceQuery(toQuery({ ...filter, ...part }));
  return (
    <Page title="Jobs" aside={<span className="muted">{loaded ? `${shown.length.toLocaleString("en")} of ${rows.length.toLocaleString("en")}` : ""}</span>}>
      <div className="filters">
        <input
          type="search"
          placeholder="Name, id or owner"
          aria-label="Search jobs by name, id or owner"
          value={filter.text}
          onChange={(e) => change({ text: e.target.value })}
        />
        <div className="chips" role="group" aria-label="State">
          <button aria-pressed={!filter.group} onClick={() => change({ group: "" })}>
            all
          </button>
          {GROUPS.map((g) => (
            <button key={g} aria-pressed={filter.group === g} onClick={() => change({ group: filter.group === g ? "" : g })}>
              {g} <b>{found[g]}</b>
            </button>
          ))}
        </div>
        <select aria-label="Mode" value={filter.mode} onChange={(e) => change({ mode: e.target.value })}>
          <option value="">batch and streaming</option>
          <option value="batch">batch</option>
          <option value="streaming">streaming</option>
        </select>
      </div>
      <Trouble text={error} />
      {!loaded ? (
        !error && <Loading />
      ) : shown.length ? (
        <JobTable rows={shown} now={now} filter={filter} onSort={change} />
      ) : (
        <Card>
          <Empty>{rows.length ? "No matching jobs." : "No jobs have been submitted yet. Start one with firesteel run, or on the Submit page."}</Empty>
        </Card>
      )}
    </Page>
  );
}

/** Only rows that are seen are there: ten thousand of them scroll like ten. */
function JobTable({ rows, now, filter, onSort }: { rows: JobRow[]; now: number; filter: JobFilter; onSort: (part: Partial<JobFilter>) => void }) {
  const box = useRef<HTMLDivElement>(null);
  const [view, setView] = useState({ top: 0, height: 800 });
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const look = (): void => setView({ top: element.scrollTop, height: element.clientHeight });
    look();
    element.addEventListener("scroll", look, { passive: true });
    const size = new ResizeObserver(look);
    size.observe(element);
    return () => {
      element.removeEventListener("scroll", look);
      size.disconnect();
    };
  }, []);
  const first = Math.max(0, Math.min(Math.floor(view.top / ROW) - MORE, rows.length - 1));
  const last = Math.min(rows.length, Math.ceil((view.top + view.height) / ROW) + MORE);
  const head = (key: SortKey, name: string, className = ""): React.ReactNode => {
    const on = filter.sort === key;
    return (
      <th className={className} aria-sort={on ? (filter.descending ? "descending" : "ascending") : "none"} scope="col">
        <button className="sort" onClick={() => onSort({ sort: key, descending: on ? !filter.descending : key !== "name" && key !== "owner" && key !== "status" })}>
          {name} <span aria-hidden="true">{on ? (filter.descending ? "↓" : "↑") : ""}</span>
        </button>
      </th>
    );
  };
  return (
    <div className="table-box tall" ref={box} tabIndex={0} role="region" aria-label="Jobs">
      <table className="rows" aria-rowcount={rows.length + 1}>
        <thead>
          <tr>
            {head("status", "State")}
            {head("name", "Name")}
            {head("owner", "Owner", "wide")}
            {head("submitted", "Submitted", "wide")}
            {head("duration", "Duration", "right")}
          </tr>
        </thead>
        <tbody>
          {first > 0 && <Gap rows={first} />}
          {rows.slice(first, last).map((row, i) => (
            <tr key={row.id} aria-rowindex={first + i + 2}>
              <td>
                <Badge status={row.status} />
              </td>
              <td className="name">
                <JobLink id={row.id} name={row.name} /> <ShortId id={row.id} />
                <span className="note">{noteOf(row)}</span>
              </td>
              <td className="wide muted">{row.owner}</td>
              <td className="wide muted" title={new Date(row.submitted).toString()}>
                {ago(row.submitted, now)}
              </td>
              <td className="right num">{duration((row.ended ?? now) - row.submitted)}</td>
            </tr>
          ))}
          {last < rows.length && <Gap rows={rows.length - last} />}
        </tbody>
      </table>
    </div>
  );
}

function Gap({ rows }: { rows: number }) {
  return (
    <tr aria-hidden="true">
      <td colSpan={5} style={{ height: rows * ROW, padding: 0 }} />
    </tr>
  );
}

function noteOf(row: JobRow): string {
  const notes = [row.mode === "streaming" ? "stream" : ""];
  if (row.restarts) notes.push(`${row.restarts} ${row.restarts === 1 ? "restart" : "restarts"}`);
  if (groupOf(row.status) === "waiting") notes.push(row.cause && row.cause !== "accepted" ? row.cause : "for a slot");
  else if (row.status === "RESTARTING" && row.cause) notes.push(row.cause);
  return notes.filter(Boolean).join(" · ");
}
