/** Drawn by hand on a 20 by 20 grid, in the colour of the text. */

const PATHS: Record<string, string> = {
  overview: "M3 3h6v8H3zM11 3h6v5h-6zM11 10h6v7h-6zM3 13h6v4H3z",
  jobs: "M3 5h2M3 10h2M3 15h2M8 5h9M8 10h9M8 15h9",
  engines: "M4 4h12v5H4zM4 11h12v5H4zM7 6.5h.01M7 13.5h.01",
  queue: "M3 5h14M3 10h10M3 15h6",
  history: "M10 5v5l3 2M4 10a6 6 0 1 0 2-4.5M4 3v3.5h3.5",
  cluster: "M10 3l6 3.5v7L10 17l-6-3.5v-7zM10 10l6-3.5M10 10L4 6.5M10 10v7",
  submit: "M10 13V4M6 8l4-4 4 4M4 13v3h12v-3",
  search: "M9 4a5 5 0 1 0 0 10A5 5 0 0 0 9 4zM13 13l4 4",
  moon: "M16 11.5A6.5 6.5 0 0 1 8.5 4a6.5 6.5 0 1 0 7.5 7.5z",
  out: "M8 4H4v12h4M8 10h9M14 7l3 3-3 3",
  source: "M4 6c0-1.4 2.7-2.5 6-2.5S16 4.6 16 6s-2.7 2.5-6 2.5S4 7.4 4 6zM4 6v8c0 1.4 2.7 2.5 6 2.5s6-1.1 6-2.5V6M4 10c0 1.4 2.7 2.5 6 2.5s6-1.1 6-2.5",
  sql: "M4 5h12M4 10h12M4 15h12M8 5v10",
  python: "M7 6l-4 4 4 4M13 6l4 4-4 4M11 4l-2 12",
  sink: "M10 4v8M6.5 9L10 12.5 13.5 9M4 13v3h12v-3",
  script: "M5 3h7l3 3v11H5zM8 10h4M8 13h4",
  close: "M5 5l10 10M15 5L5 15",
  check: "M4 10.5l4 4 8-9",
  copy: "M7 7h9v9H7zM4 13V4h9",
  more: "M5 10h.01M10 10h.01M15 10h.01",
};

export function Icon({ name, size = 18 }: { name: string; size?: number }) {
  return (
    <svg className="icon" width={size} height={size} viewBox="0 0 20 20" aria-hidden="true">
      <path d={PATHS[name] ?? PATHS.script} />
    </svg>
  );
}

export function Mark() {
  return (
    <svg width="26" height="26" viewBox="0 0 32 32" aria-hidden="true">
      <rect width="32" height="32" rx="8" fill="#d4500f" />
      <path d="M18.6 5 8.5 18h6l-1.6 9L23.5 13.5h-6.2z" fill="#fff" />
    </svg>
  );
}
