/** What came of an action, in a corner, until it was read. */

import { useSyncExternalStore } from "react";
import { Icon } from "./icons";

interface Toast {
  id: number;
  text: string;
  kind: "busy" | "done" | "failed";
}

let toasts: Toast[] = [];
let last = 0;
const listeners = new Set<() => void>();

function publish(next: Toast[]): void {
  toasts = next;
  for (const listener of listeners) listener();
}

export function toast(text: string, kind: Toast["kind"], id = ++last): number {
  publish([...toasts.filter((t) => t.id !== id), { id, text, kind }]);
  if (kind === "done") setTimeout(() => dismiss(id), 8000);
  return id;
}

function dismiss(id: number): void {
  publish(toasts.filter((t) => t.id !== id));
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function Toasts() {
  const shown = useSyncExternalStore(subscribe, () => toasts);
  return (
    <div className="toasts" role="status" aria-live="polite">
      {shown.map((t) => (
        <div key={t.id} className={`toast ${t.kind}`}>
          <span>{t.text}</span>
          <button className="quiet small" aria-label="Dismiss" onClick={() => dismiss(t.id)}>
            <Icon name="close" size={14} />
          </button>
        </div>
      ))}
    </div>
  );
}
