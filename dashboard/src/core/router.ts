/** Routes live behind the `#`: the node needs to know none of them, and they work below any path. */

import { useSyncExternalStore } from "react";

export interface Route {
  /** Without the first slash: `["jobs", "<id>", "logs"]`. */
  parts: string[];
  query: URLSearchParams;
}

export function parseRoute(hash: string): Route {
  const [path = "", query = ""] = split(hash.replace(/^#\/?/, ""));
  return { parts: path.split("/").filter(Boolean).map(decoded), query: new URLSearchParams(query) };
}

export function href(parts: string[], query?: Record<string, string>): string {
  const kept = Object.entries(query ?? {}).filter(([, value]) => value !== "");
  const suffix = kept.length ? `?${new URLSearchParams(kept)}` : "";
  return `#/${parts.map(encodeURIComponent).join("/")}${suffix}`;
}

function split(text: string): [string, string] {
  const at = text.indexOf("?");
  return at < 0 ? [text, ""] : [text.slice(0, at), text.slice(at + 1)];
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export function go(address: string): void {
  location.hash = address;
}

/** Another query of the same page, which is not worth a step back. */
export function replaceQuery(query: Record<string, string>): void {
  history.replaceState(null, "", href(parseRoute(location.hash).parts, query));
  window.dispatchEvent(new HashChangeEvent("hashchange"));
}

function subscribe(listener: () => void): () => void {
  window.addEventListener("hashchange", listener);
  return () => window.removeEventListener("hashchange", listener);
}

export function useRoute(): Route {
  const hash = useSyncExternalStore(subscribe, () => location.hash);
  return parseRoute(hash);
}
