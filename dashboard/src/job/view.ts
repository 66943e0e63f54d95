/** What the graph shows of a job. Pure. */

import type { Job, Progress } from "../core/types";
import type { GraphNode } from "../ui/graph";

export function graphNodes(job: Job, progress: Progress): GraphNode[] {
  const sinks = progress.sinks ?? {};
  const rows = { ...job.rows, ...progress.rows };
  const durations = Object.entries(sinks).flatMap(([name, s]) => (s.duration_ms === undefined ? [] : [[name, s.duration_ms] as const]));
  const longest = durations.length > 1 ? durations.reduce((a, b) => (b[1] > a[1] ? b : a))[0] : "";
  return job.vertices.map((v) => {
    const sink = sinks[v.name];
    // Queries read on their own: what a source gave is the sum of what they took.
    const reads = Object.values(sinks).reduce((n, s) => n + (s.reads?.[v.name] ?? 0), 0);
    const read = Object.values(sinks).some((s) => s.reads?.[v.name] !== undefined) ? reads : undefined;
    const tasks = sink?.tasks;
    return {
      name: v.name,
      kind: v.kind,
      inputs: v.inputs ?? [],
      // Which one it was is known: then the others did not fail, and what they did is not known.
      ...(v.status && !(job.failure?.vertex && job.failure.vertex !== v.name && v.status === "FAILED") ? { status: v.status } : {}),
      ...given("rows", rows[v.name] ?? sink?.rows ?? read),
      ...given("rate", job.status === "RUNNING" ? sink?.rows_per_second : undefined),
      ...given("batchMs", job.mode === "streaming" ? sink?.duration_ms : undefined),
      ...given("share", tasks && job.status === "RUNNING" ? (sink?.completed ?? 0) / tasks : undefined),
      reads: job.mode === "streaming" && v.kind === "sink",
      slowest: job.status === "RUNNING" && v.name === longest,
    };
  });
}

function given<K extends string>(key: K, value: number | undefined): Partial<Record<K, number>> {
  return value === undefined ? {} : ({ [key]: value } as Partial<Record<K, number>>);
}

/** How far behind event time is, in ms; undefined before the first watermark. */
export function lag(watermark: string | undefined, now: number): number | undefined {
  const at = watermark ? Date.parse(watermark) : Number.NaN;
  return at > 0 ? Math.max(0, now - at) : undefined;
}

/** The frames of a traceback that are the user's own, by their file and line. */
export function ownFrame(traceback: string): string | undefined {
  const frames = [...traceback.matchAll(/File "([^"]+)", line (\d+)/g)];
  const own = frames.filter(([, file]) => !/site-packages|\/lib\/python|\/firesteel\/|<frozen/.test(file ?? ""));
  const last = own[own.length - 1];
  return last ? `${last[1]?.split("/").pop()}, line ${last[2]}` : undefined;
}

export interface Span {
  status: string;
  from: number;
  ms: number;
}

/** How long the job was in which state, in order; the last state of an ended job takes no time. */
export function spans(job: Job, now: number): Span[] {
  const chapters = job.story.chapters;
  return chapters.flatMap((c, i) => {
    const next = chapters[i + 1];
    const until = next ? next.at * 1000 : job.ended_at === null ? now : c.at * 1000;
    const ms = Math.max(0, until - c.at * 1000);
    return ms > 0 ? [{ status: c.status, from: c.at * 1000, ms }] : [];
  });
}
