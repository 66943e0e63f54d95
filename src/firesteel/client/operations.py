"""Savepoints, stops, checkpoints and disposals. They are triggered under an id that the client chooses, then polled.

Because of that id a trigger whose answer was lost can be sent again, and whichever node leads by then knows what became of it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from firesteel.client.caller import ClusterCaller
from firesteel.client.errors import JobTimeoutError
from firesteel.client.model import Answer
from firesteel.client.requests import get, with_json
from firesteel.concurrency import Backoff
from firesteel.errors import FiresteelError, JobNotFoundError, JobStateError, OperationNotFoundError, SavepointError
from firesteel.types import JobID, new_job_id

_POLLS = Backoff(0.02, 1.0)


@dataclass(frozen=True, slots=True)
class RemoteOperation:
    name: str
    trigger: str
    poll: str
    """Where to ask, without the trigger id."""
    failure: type[FiresteelError]


SAVEPOINT = RemoteOperation("savepoint", "/jobs/{job_id}/savepoints", "/jobs/{job_id}/savepoints", SavepointError)
STOP = RemoteOperation("stop", "/jobs/{job_id}/stop", "/jobs/{job_id}/savepoints", SavepointError)
CHECKPOINT = RemoteOperation("checkpoint", "/jobs/{job_id}/checkpoints", "/jobs/{job_id}/checkpoints", JobStateError)
DISPOSAL = RemoteOperation("disposal", "/savepoint-disposal", "/savepoint-disposal", SavepointError)


async def carry_out(
    caller: ClusterCaller,
    job_id: JobID | None,
    operation: RemoteOperation,
    wish: Mapping[str, Any],
    *,
    patience: float | None = None,
) -> dict[str, Any]:
    """Trigger an operation, wait for its end, and return its outcome. Raises as `outcome_of` does."""
    begun = time.monotonic()
    trigger_id = await trigger(caller, job_id, operation, wish)
    left = None if patience is None else max(0.0, patience - (time.monotonic() - begun))
    return await outcome_of(caller, job_id, operation, trigger_id, patience=left)


async def trigger(
    caller: ClusterCaller,
    job_id: JobID | None,
    operation: RemoteOperation,
    wish: Mapping[str, Any],
    trigger_id: str | None = None,
) -> str:
    """Begin an operation, and return the id under which to ask for it. Under the same id it is begun once."""
    content = {**wish, "triggerId": trigger_id or new_job_id()}
    request = with_json("POST", operation.trigger.format(job_id=job_id), content, missing=JobNotFoundError)
    # A node that does not take our id gives one of its own.
    return Answer(await caller.json(request), f"the answer to a {operation.name}").text("request-id")


async def outcome_of(
    caller: ClusterCaller,
    job_id: JobID | None,
    operation: RemoteOperation,
    trigger_id: str,
    *,
    patience: float | None = None,
) -> dict[str, Any]:
    """Wait for the end of an operation. Raises the operation's error when it failed, JobTimeoutError when too late."""
    deadline = None if patience is None else time.monotonic() + patience
    poll = get(f"{operation.poll.format(job_id=job_id)}/{trigger_id}", missing=OperationNotFoundError)
    for pause in _POLLS.delays():
        told = Answer(await caller.json(poll), f"the state of a {operation.name}")
        if told.mapping("status").get("id") == "COMPLETED":
            break
        if deadline is not None and time.monotonic() + pause > deadline:
            of = f" of job {job_id}" if job_id else ""
            raise JobTimeoutError(
                job_id, f"the {operation.name}{of} was not complete after {patience:g} s; it continues"
            )
        await caller.pause(pause)
    outcome = told.mapping("operation")
    cause = outcome.get("failure-cause") or outcome.get("failureCause")
    if cause is not None:
        raise operation.failure(_text(cause))
    return outcome


def _text(cause: object) -> str:
    """The message of a failure, without the name of its class and the node's stack trace."""
    if not isinstance(cause, Mapping):
        return str(cause)
    said = str(cause.get("stack-trace") or cause.get("class") or "it failed")
    lines = said.splitlines()
    frames = next((n for n, line in enumerate(lines) if line.startswith("\tat ")), len(lines))
    text = "\n".join(lines[:frames]).strip()
    return text.removeprefix(f"{cause.get('class')}: ") or said
