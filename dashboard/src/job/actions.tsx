/** Cancel, stop, savepoint, resume: each asks once and says what came of it. */

import { useState } from "react";
import { get, messageOf, send } from "../core/api";
import { mayChange } from "../core/rights";
import { go } from "../core/router";
import { isEnded } from "../core/states";
import type { Job, WhoAmI } from "../core/types";
import { Ask } from "../ui/parts";
import { toast } from "../ui/toasts";

type Wish = "cancel" | "stop" | "savepoint" | "resume";

interface Operation {
  status: { id: string };
  operation?: { location?: string; "failure-cause"?: { class?: string; "stack-trace"?: string } };
}

const POLL_MS = 700;
const WORDS: Record<Wish, { title: string; yes: string; text: string; danger?: boolean }> = {
  cancel: { title: "Cancel this job?", yes: "Cancel the job", text: "Running work is interrupted. A stream keeps its checkpoint; no savepoint is taken.", danger: true },
  stop: { title: "Stop this stream with a savepoint?", yes: "Stop it", text: "It stops after its current batch and leaves a savepoint, from which it can be resumed." },
  savepoint: { title: "Take a savepoint?", yes: "Take it", text: "It covers everything up to the last committed batch. The stream keeps running." },
  resume: { title: "Resume this stream?", yes: "Resume", text: "A new job starts with the same graph, from the checkpoint or savepoint of this one." },
};

export function Actions({ job, who, onDone }: { job: Job; who: WhoAmI; onDone: () => void }) {
  const [wish, setWish] = useState<Wish | null>(null);
  if (!mayChange(who, job.owner)) return null;
  const stream = job.mode === "streaming";
  const ended = isEnded(job.status);
  const run = (chosen: Wish): void => {
    setWish(null);
    void act(job, chosen).then(onDone);
  };
  return (
    <>
      {!ended && stream && job.status === "RUNNING" && (
        <>
          <button onClick={() => setWish("savepoint")}>Savepoint</button>
          <button onClick={() => setWish("stop")}>Stop with savepoint</button>
        </>
      )}
      {!ended && (
        <button className="danger-quiet" onClick={() => setWish("cancel")}>
          Cancel
        </button>
      )}
      {ended && stream && (job.savepoint || job.checkpoint) && <button onClick={() => setWish("resume")}>Resume</button>}
      {wish && (
        <Ask title={WORDS[wish].title} yes={WORDS[wish].yes} danger={WORDS[wish].danger ?? false} onYes={() => run(wish)} onNo={() => setWish(null)}>
          <p>
            <b>{job.name}</b>
          </p>
          <p>{WORDS[wish].text}</p>
        </Ask>
      )}
    </>
  );
}

async function act(job: Job, wish: Wish): Promise<void> {
  const path = `jobs/${job.job_id}`;
  const id = toast({ cancel: "Cancelling…", stop: "Stopping with a savepoint…", savepoint: "Taking a savepoint…", resume: "Resuming…" }[wish], "busy");
  try {
    if (wish === "cancel") {
      await send("PATCH", `${path}?mode=cancel`, {});
      toast("The job is being cancelled.", "done", id);
    } else if (wish === "resume") {
      const made = await send<{ jobId: string }>("POST", `${path}/resume`, {});
      toast("The stream continues as a new job.", "done", id);
      go(`#/jobs/${made.jobId}`);
    } else {
      const made = await send<{ "request-id": string }>("POST", `${path}/${wish === "stop" ? "stop" : "savepoints"}`, {});
      const location = await outcome(`${path}/savepoints/${made["request-id"]}`);
      toast(`${wish === "stop" ? "Stopped. " : ""}The savepoint is at ${location}`, "done", id);
    }
  } catch (failed) {
    toast(messageOf(failed), "failed", id);
  }
}

async function outcome(path: string): Promise<string> {
  for (;;) {
    const found = await get<Operation>(path);
    if (found.status.id === "COMPLETED") {
      const cause = found.operation?.["failure-cause"];
      if (cause) throw new Error(cause["stack-trace"]?.split("\n")[0] ?? cause.class ?? "The operation failed.");
      return found.operation?.location ?? "there";
    }
    await new Promise((done) => setTimeout(done, POLL_MS));
  }
}
