import { useCallback, useEffect, useRef, useState } from "react";
import { get, messageOf } from "./api";

export interface Loaded<T> {
  data: T | undefined;
  error: string;
  reload: () => void;
}

/** What `path` answers; asked again every `every` ms while the page is seen. An error leaves what was known. */
export function useResource<T>(path: string | null, every = 0): Loaded<T> {
  const [state, setState] = useState<{ path: string | null; data: T | undefined; error: string }>({
    path,
    data: undefined,
    error: "",
  });
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    if (path === null) return;
    const control = new AbortController();
    get<T>(path, control.signal).then(
      (data) => setState({ path, data, error: "" }),
      (error: unknown) => {
        if (!control.signal.aborted) {
          setState((s) => ({ path, data: s.path === path ? s.data : undefined, error: messageOf(error) }));
        }
      },
    );
    return () => control.abort();
  }, [path, turn]);
  useInterval(() => setTurn((n) => n + 1), path === null ? 0 : every);
  const reload = useCallback(() => setTurn((n) => n + 1), []);
  const fresh = state.path === path;
  return { data: fresh ? state.data : undefined, error: fresh ? state.error : "", reload };
}

export function useInterval(call: () => void, every: number): void {
  const latest = useRef(call);
  useEffect(() => {
    latest.current = call;
  });
  useEffect(() => {
    if (!every) return;
    const timer = setInterval(() => {
      if (!document.hidden) latest.current();
    }, every);
    return () => clearInterval(timer);
  }, [every]);
}

/** The time, which goes on. */
export function useNow(every = 1000): number {
  const [now, setNow] = useState(Date.now());
  useInterval(() => setNow(Date.now()), every);
  return now;
}

export function useTitle(title: string): void {
  useEffect(() => {
    document.title = title ? `${title} · Firesteel` : "Firesteel";
  }, [title]);
}
