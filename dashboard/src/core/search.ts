/** Which jobs a person means. */

import { GROUPS, groupOf, type Group } from "./states";
import type { JobRow } from "./types";

export type SortKey = "name" | "status" | "owner" | "submitted" | "duration";

export interface JobFilter {
  text: string;
  group: Group | "";
  mode: string;
  sort: SortKey;
  descending: boolean;
}

const SORTS: SortKey[] = ["name", "status", "owner", "submitted", "duration"];

export function filterFrom(query: URLSearchParams): JobFilter {
  const group = query.get("state") ?? "";
  const sort = query.get("sort") ?? "submitted";
  const mode = query.get("mode") ?? "";
  return {
    text: query.get("q") ?? "",
    group: GROUPS.find((g) => g === group) ?? "",
    mode: mode === "batch" || mode === "streaming" ? mode : "",
    sort: SORTS.find((s) => s === sort) ?? "submitted",
    descending: query.get("order") !== "asc",
  };
}

/** Only what is not as it is anyway: addresses stay short. */
export function toQuery(filter: JobFilter): Record<string, string> {
  return {
    q: filter.text,
    state: filter.group,
    mode: filter.mode,
    sort: filter.sort === "submitted" ? "" : filter.sort,
    order: filter.descending ? "" : "asc",
  };
}

export function matches(row: JobRow, words: string[]): boolean {
  return words.every(
    (w) => row.name.toLowerCase().includes(w) || row.id.startsWith(w) || row.owner.toLowerCase().includes(w),
  );
}

export function wordsOf(text: string): string[] {
  return text.toLowerCase().split(/\s+/).filter(Boolean);
}

export function selected(rows: JobRow[], filter: JobFilter, now: number): JobRow[] {
  const words = wordsOf(filter.text);
  const kept = rows.filter(
    (r) => (!filter.group || groupOf(r.status) === filter.group) && (!filter.mode || r.mode === filter.mode) && matches(r, words),
  );
  const sign = filter.descending ? -1 : 1;
  const value = (r: JobRow): string | number => {
    switch (filter.sort) {
      case "name":
        return r.name.toLowerCase();
      case "status":
        return r.status;
      case "owner":
        return r.owner.toLowerCase();
      case "duration":
        return (r.ended ?? now) - r.submitted;
      default:
        return r.submitted;
    }
  };
  const keyed = kept.map((row) => ({ row, key: value(row) }));
  keyed.sort((a, b) => (a.key < b.key ? -sign : a.key > b.key ? sign : b.row.submitted - a.row.submitted));
  return keyed.map((k) => k.row);
}

export function counts(rows: JobRow[]): Record<Group, number> {
  const found: Record<Group, number> = { running: 0, waiting: 0, failed: 0, finished: 0, canceled: 0 };
  for (const row of rows) found[groupOf(row.status)]++;
  return found;
}
