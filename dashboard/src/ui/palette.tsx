/** Everything in one field: pages, jobs, and what can be done from anywhere. */

import { useEffect, useMemo, useRef, useState } from "react";
import { useJobs } from "../core/live";
import { go } from "../core/router";
import { matches, wordsOf } from "../core/search";
import { Badge } from "./parts";
import { Icon } from "./icons";

export interface Command {
  name: string;
  icon: string;
  hint?: string;
  run: () => void;
}

const MOST = 12;

export function Palette({ commands, onClose }: { commands: Command[]; onClose: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const list = useRef<HTMLUListElement>(null);
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const { rows } = useJobs();
  useEffect(() => {
    const shown = dialog.current;
    shown?.showModal();
    return () => shown?.close();
  }, []);
  const found = useMemo(() => {
    const words = wordsOf(text);
    const named = commands.filter((c) => words.every((w) => c.name.toLowerCase().includes(w)));
    const jobs = [];
    for (const row of rows) {
      if (jobs.length >= MOST) break;
      if (matches(row, words)) jobs.push(row);
    }
    return [
      ...named.map((c) => ({ key: c.name, run: c.run, command: c, row: undefined })),
      ...jobs.map((row) => ({ key: row.id, run: () => go(`#/jobs/${row.id}`), command: undefined, row })),
    ].slice(0, MOST);
  }, [text, commands, rows]);
  useEffect(() => {
    list.current?.children[at]?.scrollIntoView({ block: "nearest" });
  }, [at]);
  const run = (index: number): void => {
    const entry = found[index];
    if (!entry) return;
    onClose();
    entry.run();
  };
  return (
    <dialog ref={dialog} className="palette" aria-label="Command palette" onCancel={onClose} onClick={(e) => e.target === dialog.current && onClose()}>
      <input
        autoFocus
        placeholder="Go to a page or a job…"
        role="combobox"
        aria-label="Search pages and jobs"
        aria-expanded="true"
        aria-controls="palette-list"
        aria-activedescendant={found[at] ? `palette-${at}` : undefined}
        value={text}
        onChange={(e) => {
          setText(e.target.value);
          setAt(0);
        }}
        onKeyDown={(e) => {
          if (e.key === "ArrowDown") setAt(Math.min(at + 1, found.length - 1));
          else if (e.key === "ArrowUp") setAt(Math.max(at - 1, 0));
          else if (e.key === "Enter") run(at);
          else return;
          e.preventDefault();
        }}
      />
      <ul ref={list} id="palette-list" role="listbox" aria-label="Found">
        {found.map(({ key, command, row }, i) => (
          <li key={key} id={`palette-${i}`} role="option" aria-selected={i === at} onClick={() => run(i)} onPointerMove={() => setAt(i)}>
            {command ? (
              <>
                <Icon name={command.icon} size={16} /> <span>{command.name}</span> {command.hint && <kbd>{command.hint}</kbd>}
              </>
            ) : (
              <>
                <Icon name="jobs" size={16} /> <span>{row!.name}</span> <Badge status={row!.status} />
              </>
            )}
          </li>
        ))}
        {!found.length && <li className="empty">No matches.</li>}
      </ul>
    </dialog>
  );
}
