/** The one event stream of a page, and the jobs that it keeps up to date. */

import { useEffect, useSyncExternalStore } from "react";
import { get } from "./api";
import { isEnded } from "./states";
import type { JobRow } from "./types";

export interface StateEvent {
  job_id: string;
  at: number;
  status: string;
  cause?: string;
  attempt?: number;
}

export type Connection = "connecting" | "live" | "broken";
type Listener = () => void;

const RETRY_MS = [500, 1000, 2000, 4000, 8000];

class Store<T> {
  private listeners = new Set<Listener>();
  constructor(private value: T) {}
  get = (): T => this.value;
  set(value: T): void {
    this.value = value;
    for (const listener of this.listeners) listener();
  }
  subscribe = (listener: Listener): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };
}

export const connection = new Store<Connection>("connecting");
const jobs = new Store<{ rows: JobRow[]; loaded: boolean; error: string }>({ rows: [], loaded: false, error: "" });

/** A row as it is after an event; the same object when the event says nothing new. */
export function applied(row: JobRow, event: StateEvent): JobRow {
  const at = Math.round(event.at * 1000);
  if (at < row.changed || (row.status === event.status && row.cause === event.cause)) return row;
  return {
    ...row,
    status: event.status,
    changed: at,
    ended: isEnded(event.status) ? at : null,
    attempt: event.attempt ?? row.attempt,
    restarts: event.status === "RESTARTING" ? row.restarts + 1 : row.restarts,
    ...(event.cause ? { cause: event.cause } : {}),
  };
}

let reloading: ReturnType<typeof setTimeout> | undefined;
let loads = 0;

export async function loadJobs(): Promise<void> {
  const mine = ++loads;
  try {
    const answer = await get<{ jobs: JobRow[] }>("jobs/list");
    if (mine !== loads) return;
    const causes = new Map(jobs.get().rows.flatMap((r) => (r.cause ? [[r.id, r]] : [])) as [string, JobRow][]);
    const rows = answer.jobs.map((row) => {
      const before = causes.get(row.id);
      return before?.status === row.status && before.cause ? { ...row, cause: before.cause } : row;
    });
    rows.sort((a, b) => b.submitted - a.submitted);
    jobs.set({ rows, loaded: true, error: "" });
  } catch (error) {
    if (mine === loads) jobs.set({ ...jobs.get(), error: error instanceof Error ? error.message : String(error) });
  }
}

function reloadSoon(): void {
  reloading ??= setTimeout(() => {
    reloading = undefined;
    void loadJobs();
  }, 700);
}

let waiting: StateEvent[] = [];

/** Changes of a moment are shown together: a thousand of them are one picture. */
function change(event: StateEvent): void {
  if (!waiting.length) setTimeout(flush, 100);
  waiting.push(event);
}

function flush(): void {
  const events = waiting;
  waiting = [];
  const { rows, ...rest } = jobs.get();
  const places = new Map(rows.map((row, index) => [row.id, index]));
  const next = [...rows];
  let unknown = false;
  for (const event of events) {
    const at = places.get(event.job_id);
    const row = at === undefined ? undefined : next[at];
    if (at === undefined || !row) unknown = true;
    else next[at] = applied(row, event);
  }
  jobs.set({ ...rest, rows: next });
  if (unknown) reloadSoon();
}

export type StreamHandler = (kind: string, data: Record<string, unknown>) => void;

/** Opens `path` and keeps it open; `handle` gets every event. `broken` is called before it is opened again. */
export function openStream(path: string, kinds: string[], handle: StreamHandler, opened: () => void): () => void {
  let source: EventSource | undefined;
  let failures = 0;
  let timer: ReturnType<typeof setTimeout> | undefined;
  let over = false;

  const open = (): void => {
    source = new EventSource(`./${path}`, { withCredentials: false });
    source.onopen = () => {
      failures = 0;
      connection.set("live");
      opened();
    };
    source.onerror = () => {
      source?.close();
      if (over) return;
      connection.set("broken");
      const pause = RETRY_MS[Math.min(failures++, RETRY_MS.length - 1)] ?? 8000;
      timer = setTimeout(() => {
        // A session that has ended is found out by asking; the stream itself does not say.
        get("whoami").then(open, open);
      }, pause);
    };
    for (const kind of kinds) {
      source.addEventListener(kind, (event) => handle(kind, JSON.parse((event as MessageEvent<string>).data)));
    }
  };
  open();
  return () => {
    over = true;
    clearTimeout(timer);
    source?.close();
  };
}

/** While the component is there, jobs are loaded and changes come in. */
export function useLiveJobs(on: boolean): void {
  useEffect(() => {
    if (!on) return;
    void loadJobs();
    const handle: StreamHandler = (kind, data) =>
      kind === "lost" ? reloadSoon() : change(data as unknown as StateEvent);
    let first = true;
    return openStream("events", ["state", "lost"], handle, () => {
      if (!first) void loadJobs();
      first = false;
    });
  }, [on]);
}

export function useJobs(): { rows: JobRow[]; loaded: boolean; error: string } {
  return useSyncExternalStore(jobs.subscribe, jobs.get);
}

export function useConnection(): Connection {
  return useSyncExternalStore(connection.subscribe, connection.get);
}
