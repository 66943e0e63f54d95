/** Numbers and times as people read them. */

export function duration(ms: number): string {
  if (!Number.isFinite(ms) || ms < 0) return "–";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const seconds = ms / 1000;
  if (seconds < 10) return `${(Math.floor(seconds * 10) / 10).toFixed(1)} s`;
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${pad(Math.floor(seconds % 60))} s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 24) return `${hours} h ${pad(minutes % 60)} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** The same without what is small beside the rest. */
export function about(ms: number): string {
  const [first = "", unit = ""] = duration(ms).split(" ");
  return first === "–" ? first : `${first} ${unit}`;
}

export function ago(then: number, now: number): string {
  return now - then < 5000 ? "just now" : `${about(now - then)} ago`;
}

export function count(n: number | null | undefined): string {
  if (n == null || !Number.isFinite(n)) return "–";
  if (n < 10_000) return Number.isInteger(n) ? n.toLocaleString("en") : n.toFixed(n < 10 ? 1 : 0);
  for (const [size, unit] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]] as const) {
    if (n >= size) return `${(n / size).toFixed(n / size < 100 ? 1 : 0)} ${unit}`;
  }
  return String(n);
}

export function bytes(n: number): string {
  let size = n;
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (size < 1024) return `${size < 10 && unit !== "B" ? size.toFixed(1) : Math.round(size)} ${unit}`;
    size /= 1024;
  }
  return `${size.toFixed(1)} TiB`;
}

export function clock(ms: number): string {
  const d = new Date(ms);
  return `${pad(d.getHours())}:${pad(d.getMinutes())}:${pad(d.getSeconds())}`;
}

export function moment(ms: number): string {
  const d = new Date(ms);
  return `${d.getFullYear()}-${pad(d.getMonth() + 1)}-${pad(d.getDate())} ${clock(ms)}`;
}

function pad(n: number): string {
  return String(n).padStart(2, "0");
}
