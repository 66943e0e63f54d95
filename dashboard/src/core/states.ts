/** States of a job, and what they mean to the one who looks. */

export type Tone = "good" | "done" | "bad" | "warn" | "wait" | "off";

const TONES: Record<string, Tone> = {
  RUNNING: "good",
  FINISHED: "done",
  FAILED: "bad",
  FAILING: "bad",
  RESTARTING: "warn",
  RECONCILING: "warn",
  CANCELLING: "warn",
  SUSPENDED: "warn",
  CREATED: "wait",
  INITIALIZING: "wait",
  CANCELED: "off",
};
const ENDED = new Set(["FINISHED", "FAILED", "CANCELED"]);

export const GROUPS = ["running", "waiting", "failed", "finished", "canceled"] as const;
export type Group = (typeof GROUPS)[number];

export function tone(status: string): Tone {
  return TONES[status] ?? "off";
}

export function isEnded(status: string): boolean {
  return ENDED.has(status);
}

export function groupOf(status: string): Group {
  if (status === "FINISHED") return "finished";
  if (status === "FAILED") return "failed";
  if (status === "CANCELED") return "canceled";
  return tone(status) === "wait" ? "waiting" : "running";
}

/** As a sentence has it. */
export function word(status: string): string {
  if (status === "CREATED") return "waiting";
  if (status === "INITIALIZING") return "starting";
  return status.toLowerCase();
}
