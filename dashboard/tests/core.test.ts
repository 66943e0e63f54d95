import assert from "node:assert/strict";
import { test } from "node:test";
import { curve, layersOf, layOut, SIZES } from "../src/core/dag";
import { about, ago, bytes, count, duration } from "../src/core/format";
import { applied } from "../src/core/live";
import { mayChange } from "../src/core/rights";
import { href, parseRoute } from "../src/core/router";
import { ticks } from "../src/core/scale";
import { counts, filterFrom, selected, toQuery } from "../src/core/search";
import { groupOf } from "../src/core/states";
import type { Job, JobRow } from "../src/core/types";
import { graphNodes, lag, ownFrame, spans } from "../src/job/view";

const row = (id: string, more: Partial<JobRow> = {}): JobRow => ({
  id, name: id, mode: "batch", status: "RUNNING", owner: "a", submitted: 1000, changed: 2000, ended: null, attempt: 1, restarts: 0, ...more,
});

test("durations are read at a glance", () => {
  const said = [0, 999, 1500, 59_999, 60_000, 3_600_000, 90_000_000, -1, Number.NaN].map(duration);
  assert.deepEqual(said, ["0 ms", "999 ms", "1.5 s", "59 s", "1 min 00 s", "1 h 00 min", "1 d 1 h", "–", "–"]);
  assert.equal(about(3_700_000), "1 h");
  assert.equal(ago(0, 4000), "just now");
  assert.equal(ago(0, 61_000), "1 min ago");
});

test("counts and sizes stay short", () => {
  assert.deepEqual([0, 9999, 12_345, 1_500_000, 2.25, undefined].map(count), ["0", "9,999", "12.3 k", "1.5 M", "2.3", "–"]);
  assert.deepEqual([0, 1023, 1536, 5 * 1024 ** 3].map(bytes), ["0 B", "1023 B", "1.5 KiB", "5.0 GiB"]);
});

test("ticks are round and reach the most", () => {
  assert.deepEqual(ticks(7), [0, 2, 4, 6, 8]);
  assert.deepEqual(ticks(0), [0, 1]);
  for (const most of [0.3, 1, 99, 12_345]) assert.ok((ticks(most).at(-1) ?? 0) >= most && ticks(most).length <= 7);
});

test("a vertex stands right of what it reads, and a source beside its first reader", () => {
  const depth = layersOf([
    { name: "a", inputs: [] },
    { name: "b", inputs: ["a"] },
    { name: "late", inputs: [] },
    { name: "c", inputs: ["b", "late"] },
  ]);
  assert.deepEqual([...depth], [["a", 0], ["b", 1], ["late", 1], ["c", 2]]);
});

test("no two vertices share a place, whatever the graph", () => {
  let seed = 7;
  const random = (n: number): number => (seed = (seed * 48_271) % 2_147_483_647) % n;
  for (let round = 0; round < 50; round++) {
    const size = 1 + random(30);
    const graph = Array.from({ length: size }, (_, i) => ({
      name: `v${i}`,
      inputs: Array.from({ length: random(4) }, () => `v${random(Math.max(1, i))}`).filter((n) => n !== `v${i}`),
    }));
    const { nodes, width, height, edges } = layOut(graph);
    for (const a of nodes) {
      assert.ok(a.x >= 0 && a.y >= 0 && a.x + SIZES.width <= width && a.y + SIZES.height <= height);
      for (const b of nodes) if (a !== b && a.x === b.x) assert.ok(Math.abs(a.y - b.y) >= SIZES.height, `${a.name} and ${b.name}`);
    }
    for (const e of edges) assert.ok(curve(e.points).startsWith("M"));
  }
});

test("a graph that reads itself is drawn all the same", () => {
  assert.equal(layOut([{ name: "a", inputs: ["b"] }, { name: "b", inputs: ["a"] }]).nodes.length, 2);
});

test("routes survive what people put into names", () => {
  const address = href(["jobs", "a/b c"], { q: "100 % & more", empty: "" });
  const { parts, query } = parseRoute(address);
  assert.deepEqual(parts, ["jobs", "a/b c"]);
  assert.deepEqual([...query], [["q", "100 % & more"]]);
  assert.deepEqual(parseRoute("#/jobs/%").parts, ["jobs", "%"]);
});

test("filters come back from their address", () => {
  const filter = filterFrom(new URLSearchParams("q=x&state=failed&mode=streaming&sort=name&order=asc"));
  assert.deepEqual(filterFrom(new URLSearchParams(Object.entries(toQuery(filter)))), filter);
  assert.equal(filterFrom(new URLSearchParams("state=nonsense&sort=nonsense")).group, "");
});

test("jobs are found by words, state and mode, and sorted", () => {
  const rows = [row("one", { name: "Daily orders" }), row("two", { name: "clicks", mode: "streaming" }), row("three", { name: "orders", status: "FAILED", submitted: 5 })];
  const find = (query: string): string[] => selected(rows, filterFrom(new URLSearchParams(query)), 9000).map((r) => r.id);
  assert.deepEqual(find("q=ORDERS daily"), ["one"]);
  assert.deepEqual(find("state=failed"), ["three"]);
  assert.deepEqual(find("mode=streaming"), ["two"]);
  assert.deepEqual(find("sort=name&order=asc"), ["two", "one", "three"]);
  assert.deepEqual(counts(rows), { running: 2, waiting: 0, failed: 1, finished: 0, canceled: 0 });
});

test("ten thousand jobs are sorted while nobody notices", () => {
  const rows = Array.from({ length: 10_000 }, (_, i) => row(`j${i}`, { submitted: (i * 7919) % 10_007 }));
  const begin = performance.now();
  assert.equal(selected(rows, filterFrom(new URLSearchParams()), 0).length, 10_000);
  assert.ok(performance.now() - begin < 500);
});

test("an event changes a row, and an old one does not", () => {
  const before = row("a");
  const after = applied(before, { job_id: "a", at: 3, status: "FAILED", cause: "attempt 1 failed" });
  assert.deepEqual([after.status, after.ended, after.cause], ["FAILED", 3000, "attempt 1 failed"]);
  assert.equal(applied(before, { job_id: "a", at: 1, status: "CREATED" }), before);
  assert.equal(applied(before, { job_id: "a", at: 3, status: "RESTARTING" }).restarts, 1);
});

test("states have a group", () => {
  assert.deepEqual(["CREATED", "RESTARTING", "CANCELED", "SOMETHING"].map(groupOf), ["waiting", "running", "canceled", "running"]);
});

test("buttons are for those who may", () => {
  const who = (role: "viewer" | "operator" | "admin", owner: string) => mayChange({ name: "x", role, owner }, "team");
  assert.deepEqual([who("admin", "*"), who("operator", "team"), who("operator", "other"), who("viewer", "team")], [true, true, false, false]);
});

const job = {
  status: "RUNNING", mode: "streaming", rows: {}, failure: null, ended_at: null,
  vertices: [
    { name: "in", kind: "source", inputs: [], status: "RUNNING" },
    { name: "x", kind: "sink", inputs: ["in"], status: "RUNNING" },
    { name: "y", kind: "sink", inputs: ["in"], status: "RUNNING" },
  ],
  story: { chapters: [{ at: 1, status: "CREATED" }, { at: 3, status: "RUNNING" }], left_out: 0 },
} as unknown as Job;

test("the graph has what a source gave, and names the slowest sink", () => {
  const nodes = graphNodes(job, { sinks: { x: { rows: 5, duration_ms: 10, reads: { in: 7 } }, y: { duration_ms: 90, reads: { in: 8 } } } });
  assert.deepEqual(nodes.map((n) => n.rows), [15, 5, undefined]);
  assert.deepEqual(nodes.map((n) => n.slowest), [false, false, true]);
});

test("only the vertex that failed is shown as failed", () => {
  const failed = { ...job, status: "FAILED", failure: { vertex: "y" }, vertices: job.vertices.map((v) => ({ ...v, status: "FAILED" })) } as unknown as Job;
  assert.deepEqual(graphNodes(failed, {}).map((n) => n.status), [undefined, undefined, "FAILED"]);
});

test("a timeline has the time in each state", () => {
  assert.deepEqual(spans(job, 10_000), [{ status: "CREATED", from: 1000, ms: 2000 }, { status: "RUNNING", from: 3000, ms: 7000 }]);
});

test("lag is known once there is a watermark", () => {
  assert.equal(lag("1970-01-01T00:00:00.000Z", 5), undefined);
  assert.equal(lag(undefined, 5), undefined);
  assert.equal(lag("1970-01-01T00:00:01.000Z", 5000), 4000);
});

test("the user's own line is told from libraries' lines", () => {
  const trace = 'File "/srv/job/report.py", line 7, in main\n  File "/usr/lib/python3.11/site-packages/pyspark/sql.py", line 9, in x';
  assert.equal(ownFrame(trace), "report.py, line 7");
  assert.equal(ownFrame("nothing"), undefined);
});
