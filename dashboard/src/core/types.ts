/** What the node answers, as far as pages read it. */

export type Role = "viewer" | "operator" | "admin";

export interface WhoAmI {
  name: string;
  role: Role;
  owner: string;
  /** "history": a server that shows jobs that have ended, and changes nothing. */
  serves?: string;
}

export interface JobRow {
  id: string;
  name: string;
  mode: string;
  status: string;
  owner: string;
  submitted: number;
  changed: number;
  ended: number | null;
  attempt: number;
  restarts: number;
  /** Of the last change that was seen live. */
  cause?: string;
}

export interface SinkProgress {
  state?: string;
  batch?: number;
  rows?: number;
  rows_per_second?: number;
  duration_ms?: number;
  state_rows?: number;
  watermark?: string;
  busy_ms?: number;
  reads?: Record<string, number>;
  tasks?: number;
  completed?: number;
  running?: number;
  bytes_read?: number;
}

export interface Progress {
  phase?: string;
  updated_at?: number;
  result?: string | null;
  sinks?: Record<string, SinkProgress>;
  rows?: Record<string, number>;
}

export interface Failure {
  kind: string;
  message: string;
  vertex?: string | null;
  error_class?: string | null;
  traceback?: string;
}

export interface ExceptionEntry {
  at: number;
  attempt: number;
  vertex?: string | null;
  kind: string;
  message: string;
  root_cause?: string | null;
  traceback?: string;
  labels?: Record<string, string>;
}

export interface Vertex {
  name: string;
  kind: string;
  description?: string;
  inputs?: string[];
  parallelism?: number | null;
  status?: string;
  progress?: SinkProgress;
}

export interface GraphVertex extends Record<string, unknown> {
  name: string;
  kind: string;
  description?: string;
  inputs?: string[];
  input?: string;
  query?: string;
}

export interface JobGraph {
  name: string;
  description?: string;
  mode?: string;
  settings?: Record<string, unknown>;
  vertices: GraphVertex[];
}

export interface Chapter {
  at: number;
  status: string;
  cause: string;
  attempt: number;
  epoch: number;
}

export interface BatchLog {
  last: number;
  restores: number;
  recent: [number, number, number][];
}

export interface Job {
  job_id: string;
  name: string;
  mode: string;
  owner: string;
  status: string;
  submitted_at: number;
  ended_at: number | null;
  duration: number;
  priority: number;
  attempt: number;
  restarts: number;
  engine_id: string;
  started_at: number | null;
  attempts: { number: number; started_at: number; ended_at: number | null; engine_id: string; endpoint: string }[];
  story: { chapters: Chapter[]; left_out: number };
  checkpoint: string;
  savepoint: string;
  resumes: string;
  failure: Failure | null;
  exceptions: ExceptionEntry[];
  progress: Progress;
  checkpoints: Record<string, BatchLog>;
  rows: Record<string, number>;
  graph: JobGraph;
  vertices: Vertex[];
}

export interface Engine {
  id: string;
  master: string;
  memory: string;
  cores: number;
  slots: number;
  free: number;
  state: string;
  since: number;
  address: string;
  foreign: boolean;
  owner: string | null;
  worker: string;
  worker_name: string;
}

export interface ClusterStatus {
  cluster_id: string;
  leader: { address: string; epoch: number } | null;
  version: string;
  node: { address: string; pid: number; host: string; started: number };
  "high-availability": string;
  degraded: boolean;
  reason: string | null;
  since: number | null;
  lastLeader: { address: string; epoch: number } | null;
}

export interface Problem {
  message: string;
  fix: string;
  vertex: string | null;
  field: string | null;
  line: number | null;
  certain: boolean;
}
