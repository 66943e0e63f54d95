/** Small pieces that every page is made of. */

import { useEffect, useRef, useState, type ReactNode } from "react";
import { moment } from "../core/format";
import { tone, word } from "../core/states";
import { Icon } from "./icons";

export function Badge({ status }: { status: string }) {
  return (
    <span className={`badge tone-${tone(status)}`}>
      <span className="dot" />
      {word(status)}
    </span>
  );
}

export function Page({ title, aside, children }: { title: ReactNode; aside?: ReactNode; children: ReactNode }) {
  return (
    <>
      <header className="page-head">
        <h1>{title}</h1>
        <div className="page-aside">{aside}</div>
      </header>
      {children}
    </>
  );
}

export function Card({ title, aside, children, flush }: { title?: ReactNode; aside?: ReactNode; children: ReactNode; flush?: boolean }) {
  return (
    <section className={flush ? "card flush" : "card"}>
      {title && (
        <div className="card-head">
          <h2>{title}</h2>
          <div>{aside}</div>
        </div>
      )}
      {children}
    </section>
  );
}

export function Empty({ children }: { children: ReactNode }) {
  return <p className="empty">{children}</p>;
}

export function Trouble({ text }: { text: string }) {
  return text ? (
    <div className="trouble" role="alert">
      {text.split("\n").map((line, i) => (
        <p key={i}>{line}</p>
      ))}
    </div>
  ) : null;
}

export function Loading({ error }: { error?: string }) {
  return error ? <Trouble text={error} /> : <div className="loading" role="status" aria-label="Loading" />;
}

export function Facts({ of }: { of: [string, ReactNode][] }) {
  return (
    <dl className="facts">
      {of.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

export function When({ ms }: { ms: number }) {
  return <time dateTime={new Date(ms).toISOString()}>{moment(ms)}</time>;
}

export function JobLink({ id, name }: { id: string; name: string }) {
  return (
    <a className="job-link" href={`#/jobs/${id}`}>
      {name}
    </a>
  );
}

export function ShortId({ id }: { id: string }) {
  return (
    <code className="muted" title={id}>
      {id.slice(0, 8)}
    </code>
  );
}

export function Bar({ part, of, label }: { part: number; of: number; label: string }) {
  const share = of > 0 ? Math.min(1, part / of) : 0;
  return (
    <span className="bar-row">
      <svg className="bar" viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true">
        <rect className="bar-back" width="100" height="6" rx="3" />
        <rect className="bar-fill" width={share * 100} height="6" rx="3" />
      </svg>
      <span>{label}</span>
    </span>
  );
}

export function Copy({ text }: { text: string }) {
  const [done, setDone] = useState(false);
  if (!navigator.clipboard) return null;
  return (
    <button
      className="quiet small"
      title="Copy"
      aria-label="Copy"
      onClick={() => {
        void navigator.clipboard.writeText(text).then(() => {
          setDone(true);
          setTimeout(() => setDone(false), 1200);
        });
      }}
    >
      <Icon name={done ? "check" : "copy"} size={14} />
    </button>
  );
}

/** A question that is asked once. */
export function Ask(props: {
  title: string;
  children: ReactNode;
  yes: string;
  danger?: boolean;
  onYes: () => void;
  onNo: () => void;
}) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const shown = dialog.current;
    shown?.showModal();
    return () => shown?.close();
  }, []);
  return (
    <dialog ref={dialog} className="ask" aria-labelledby="ask-title" onCancel={props.onNo}>
      <h2 id="ask-title">{props.title}</h2>
      <div className="ask-body">{props.children}</div>
      <div className="ask-buttons">
        <button onClick={props.onNo} autoFocus>
          Not now
        </button>
        <button className={props.danger ? "danger" : "primary"} onClick={props.onYes}>
          {props.yes}
        </button>
      </div>
    </dialog>
  );
}
