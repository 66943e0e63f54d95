import { useCallback, useEffect, useMemo, useState, type ReactNode } from "react";
import { ApiError, get, messageOf, onSignedOut, signOut } from "./core/api";
import { useConnection, useJobs, useLiveJobs } from "./core/live";
import { maySubmit, onlyHistory } from "./core/rights";
import { go, useRoute } from "./core/router";
import { counts } from "./core/search";
import type { WhoAmI } from "./core/types";
import { Cluster } from "./pages/cluster";
import { Engines } from "./pages/engines";
import { History } from "./pages/history";
import { JobPage } from "./pages/job";
import { Jobs } from "./pages/jobs";
import { Overview } from "./pages/overview";
import { Queue } from "./pages/queue";
import { SignIn } from "./pages/sign-in";
import { Submit } from "./pages/submit";
import { Icon, Mark } from "./ui/icons";
import { Palette, type Command } from "./ui/palette";
import { Empty, Loading, Page } from "./ui/parts";
import { toggleTheme } from "./ui/theme";
import { toast, Toasts } from "./ui/toasts";

const PAGES: [string, string, string][] = [
  ["", "Overview", "o"],
  ["jobs", "Jobs", "j"],
  ["queue", "Queue", "u"],
  ["engines", "Engines", "e"],
  ["history", "History", "h"],
  ["cluster", "Cluster", "c"],
  ["submit", "Submit", "s"],
];

/** What a history server has nothing to say about. */
const OF_A_CLUSTER = new Set(["queue", "engines"]);

export function App() {
  const [who, setWho] = useState<WhoAmI | null | undefined>(undefined);
  const [error, setError] = useState("");
  const find = useCallback(() => {
    get<WhoAmI>("whoami").then(
      (found) => {
        setWho(found);
        setError("");
      },
      (failed: unknown) => {
        if (failed instanceof ApiError && failed.status === 401) setWho(null);
        else {
          setError(messageOf(failed));
          setTimeout(find, 2000);
        }
      },
    );
  }, []);
  useEffect(find, [find]);
  useEffect(() => onSignedOut(() => setWho(null)), []);
  if (who === undefined) return error ? <main className="alone"><Loading error={error} /></main> : null;
  if (who === null) return <SignIn onSignedIn={find} />;
  return <Shell who={who} />;
}

function Shell({ who }: { who: WhoAmI }) {
  const route = useRoute();
  const [page = "", id] = route.parts;
  const onJob = page === "jobs" && id !== undefined;
  useLiveJobs(!onJob);
  const [palette, setPalette] = useState(false);
  const pages = useMemo(() => PAGES.filter(([p]) => (p !== "submit" || maySubmit(who)) && !(onlyHistory(who) && OF_A_CLUSTER.has(p))), [who]);
  const leave = useCallback(() => {
    signOut().then(
      () => location.reload(),
      (failed: unknown) => toast(messageOf(failed), "failed"),
    );
  }, []);
  const commands = useMemo<Command[]>(
    () => [
      ...pages.map(([path, name, key]) => ({ name, icon: path || "overview", hint: `g ${key}`, run: () => go(`#/${path}`) })),
      { name: "Failed jobs", icon: "jobs", run: () => go("#/jobs?state=failed") },
      { name: "Light or dark", icon: "moon", hint: "t", run: toggleTheme },
      { name: "Sign out", icon: "out", run: leave },
    ],
    [pages, leave],
  );
  const showPalette = useCallback(() => setPalette(true), []);
  useKeys(pages, showPalette);
  useEffect(() => {
    document.querySelector("main")?.scrollTo(0, 0);
  }, [page, id]);
  return (
    <div className="shell">
      <a className="skip" href="#main" onClick={(e) => { e.preventDefault(); document.getElementById("main")?.focus(); }}>
        Skip to the page
      </a>
      <Navigation pages={pages} page={page} who={who} onPalette={showPalette} onLeave={leave} />
      <main id="main" tabIndex={-1}>
        <BrokenBanner />
        {pageOf(page, id, route.parts[2], route.query, who)}
        <footer className="foot">
          <a href="./assets/licences.txt" target="_blank" rel="noreferrer">Licences</a>
          <a href="./docs" target="_blank" rel="noreferrer">REST API</a>
        </footer>
      </main>
      {palette && <Palette commands={commands} onClose={() => setPalette(false)} />}
      <Toasts />
    </div>
  );
}

function pageOf(page: string, id: string | undefined, tab: string | undefined, query: URLSearchParams, who: WhoAmI): ReactNode {
  switch (page) {
    case "":
      return <Overview who={who} />;
    case "jobs":
      return id === undefined ? <Jobs query={query} /> : <JobPage key={id} id={id} tab={tab ?? "graph"} who={who} query={query} />;
    case "queue":
      return <Queue />;
    case "engines":
      return <Engines who={who} />;
    case "history":
      return <History />;
    case "cluster":
      return <Cluster who={who} />;
    case "submit":
      return maySubmit(who) ? <Submit /> : <Page title="Submit"><Empty>{who.name} may view jobs, but not submit any.</Empty></Page>;
    default:
      return <Page title="Page not found"><Empty>There is no such page. <a href="#/">Overview</a></Empty></Page>;
  }
}

function Navigation(props: { pages: [string, string, string][]; page: string; who: WhoAmI; onPalette: () => void; onLeave: () => void }) {
  const { rows } = useJobs();
  const now = useMemo(() => counts(rows), [rows]);
  const shown: Record<string, number> = { jobs: now.running, queue: now.waiting };
  const state = useConnection();
  return (
    <nav className="side" aria-label="Pages">
      <a className="brand" href="#/" aria-label="Firesteel, overview">
        <Mark /> <span>Firesteel</span>
      </a>
      <button className="find" onClick={props.onPalette}>
        <Icon name="search" size={15} /> <span>Search</span> <kbd aria-hidden="true">⌘K</kbd>
      </button>
      <ul>
        {props.pages.map(([path, name]) => (
          <li key={path}>
            <a href={`#/${path}`} aria-current={props.page === path ? "page" : undefined}>
              <Icon name={path || "overview"} /> <span>{name}</span>
              {shown[path] ? <b className="pill">{shown[path]}</b> : null}
            </a>
          </li>
        ))}
      </ul>
      <div className="me">
        <span className={`live ${state}`}>
          <span className="dot" /> {state === "live" ? "live" : state === "broken" ? "reconnecting" : "connecting"}
        </span>
        <div className="me-row">
          <span className="me-name">
            <b>{props.who.name}</b>
            <small>{props.who.role}{props.who.owner !== "*" && props.who.owner !== props.who.name ? ` · ${props.who.owner}` : ""}</small>
          </span>
          <button className="quiet" onClick={toggleTheme} aria-label="Light or dark" title="Light or dark (t)">
            <Icon name="moon" />
          </button>
          <button className="quiet" onClick={props.onLeave} aria-label="Sign out" title="Sign out">
            <Icon name="out" />
          </button>
        </div>
      </div>
    </nav>
  );
}

function BrokenBanner() {
  const state = useConnection();
  const [long, setLong] = useState(false);
  useEffect(() => {
    if (state !== "broken") return setLong(false);
    const timer = setTimeout(() => setLong(true), 1500);
    return () => clearTimeout(timer);
  }, [state]);
  return long ? <div className="banner" role="status">The connection is lost; reconnecting. The data may be out of date.</div> : null;
}

function useKeys(pages: [string, string, string][], palette: () => void): void {
  useEffect(() => {
    let before = "";
    const pressed = (event: KeyboardEvent): void => {
      if ((event.metaKey || event.ctrlKey) && event.key.toLowerCase() === "k") {
        event.preventDefault();
        palette();
        return;
      }
      const target = event.target as HTMLElement;
      if (event.metaKey || event.ctrlKey || event.altKey || target.closest("input, textarea, select, dialog")) return;
      const found = before === "g" ? pages.find(([, , key]) => key === event.key) : undefined;
      before = event.key;
      if (found) go(`#/${found[0]}`);
      else if (event.key === "t") toggleTheme();
      else if (event.key === "/") {
        const field = document.querySelector<HTMLInputElement>("main input[type=search]");
        event.preventDefault();
        if (field) field.focus();
        else palette();
      }
    };
    window.addEventListener("keydown", pressed);
    return () => window.removeEventListener("keydown", pressed);
  }, [pages, palette]);
}
