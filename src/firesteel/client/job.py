"""Clients of one job: they ask about it, wait for it and end it."""

# ruff: noqa: ASYNC109 - the blocking twin has the same parameters, and no event loop that could interrupt it

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing
from typing import Any

from firesteel.client.caller import SILENCE_SECONDS, ClusterCaller
from firesteel.client.errors import (
    ClusterError,
    ClusterUnreachableError,
    JobCanceledError,
    JobFailedError,
    JobTimeoutError,
)
from firesteel.client.events import JobEvent
from firesteel.client.listening import follow, listen
from firesteel.client.model import Answer, AttemptInfo, JobException, JobResult, status_of
from firesteel.client.operations import CHECKPOINT, SAVEPOINT, STOP, carry_out
from firesteel.client.requests import Request, of_job, segment, with_json
from firesteel.client.transport import iterate, run
from firesteel.concurrency import Backoff
from firesteel.errors import JobNotFoundError, RateLimitedError
from firesteel.status import JobStatus
from firesteel.types import JobID

_POLLS = Backoff(0.02, 0.25)
_OPEN_SECONDS = 5.0
"""How long to try to open an event stream while there is another way to find out."""


class AsyncJobClient:
    """A job, by its id. Making one sends no request."""

    def __init__(self, caller: ClusterCaller, job_id: JobID) -> None:
        self._caller = caller
        self.job_id = job_id

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.job_id}>"

    async def status(self) -> JobStatus:
        return await self._status()

    async def details(self) -> dict[str, Any]:
        """The execution graph: vertices with their states and row counts, attempts, progress, failures."""
        return _mapping(await self._caller.json(of_job(self.job_id, "/execution-graph")), "the execution graph")

    async def exceptions(self) -> tuple[JobException, ...]:
        """The failures so far, newest first."""
        return JobException.all_of(await self._caller.json(of_job(self.job_id, "/exceptions")))

    async def lineage(self) -> dict[str, Any]:
        """The inputs and outputs of the job, with columns where they are known."""
        return _mapping(await self._caller.json(of_job(self.job_id, "/lineage")), "the lineage")

    # -- waiting ----------------------------------------------------------------------------------------------------

    async def wait(self, timeout: float | None = None) -> JobResult:
        """Wait for the end of the job, across failovers, and return how it ended.

        Raises:
            JobTimeoutError: it has not ended within `timeout` seconds; it continues.
            ClusterUnreachableError: no node answered within the client's timeout.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        for pause in _POLLS.delays():
            # The stream tells at once, but a silent one is noticed late: near the deadline it is better to ask.
            listening = deadline is None or deadline - time.monotonic() > SILENCE_SECONDS
            heard = await self._last_heard(deadline) if listening else None
            if heard is not None and (result := heard.result) is not None:
                return result
            last = heard.status if heard is not None else None
            status = last if last is not None and last.terminal else await self._status_before(deadline)
            if status.terminal:
                details = await self.details()
                if details.get("ended_at") is not None:  # else its result is not durable yet
                    return JobResult.of(details)
            if deadline is not None and deadline - time.monotonic() < pause:
                break
            await self._caller.pause(pause)
        message = f"job {self.job_id} is {status.value} after {timeout:g} s of waiting; it continues"
        raise JobTimeoutError(self.job_id, message)

    async def result(self, timeout: float | None = None) -> JobResult:
        """Wait as `wait` does, for callers that continue only when the job has FINISHED.

        Raises JobFailedError or JobCanceledError when it ended otherwise.
        """
        result = await self.wait(timeout)
        match result.status:
            case JobStatus.FAILED:
                raise JobFailedError(result.job_id, result.name, result.failure)
            case JobStatus.CANCELED:
                raise JobCanceledError(result.job_id, result.name)
        return result

    async def events(self, *, logs: bool = False) -> AsyncGenerator[JobEvent, None]:
        """The events of the job, from a snapshot of its current state to its final state.

        When the stream breaks it is opened again, at another node if necessary, and begins with a new snapshot.

        Args:
            logs: also what the running attempt writes, as `log` events, the last lines from before first. They come again
                when the stream is opened again.
        """
        async with aclosing(follow(self._caller, self._event_request(logs=logs), ends=True)) as events:
            async for event in events:
                yield event

    async def _status_before(self, deadline: float | None) -> JobStatus:
        if deadline is None or (left := max(0.1, deadline - time.monotonic())) >= self._caller.timeout:
            return await self._status()
        try:
            return await self._status(left)
        except ClusterUnreachableError as error:
            message = f"could not get the state of job {self.job_id} in the time that was left: {error}"
            raise JobTimeoutError(self.job_id, message) from error

    async def _last_heard(self, deadline: float | None) -> JobEvent | None:
        """Listen until the job ends, the stream fails, or the deadline comes near. Returns the last known state."""
        last = None
        patience = min(_OPEN_SECONDS, self._caller.timeout)
        try:
            async with aclosing(listen(self._caller, self._event_request(), patience=patience)) as events:
                async for event in events:
                    last = event if event.status is not None else last
                    if event.final or (deadline is not None and deadline - time.monotonic() < SILENCE_SECONDS):
                        break
        except (ClusterError, RateLimitedError):
            pass  # asking for the status says what is the matter, and waits if need be
        return last

    def _event_request(self, *, logs: bool = False) -> Request:
        return of_job(self.job_id, "/events", {"logs": "true"} if logs else None)

    async def _status(self, patience: float | None = None) -> JobStatus:
        answer = await self._caller.json(of_job(self.job_id, "/status"), patience=patience)
        return status_of(Answer(answer, "the status of the job").get("status"))

    # -- wishes -----------------------------------------------------------------------------------------------------

    async def cancel(self, *, keep_checkpoint: bool | None = None) -> None:
        """Cancel the job. Returns once that is durable: the job ends soon and never runs again. `wait` tells when.

        Args:
            keep_checkpoint: whether to keep the checkpoint of a stream, to resume from; by default as configured.

        Raises JobStateError when it has already ended in another way.
        """
        query = {"mode": "cancel"}
        if keep_checkpoint is not None:
            query["checkpoint"] = "keep" if keep_checkpoint else "discard"
        await self._caller.call(with_json("PATCH", f"/jobs/{self.job_id}", {}, query, missing=JobNotFoundError))

    async def stop(
        self, target: str | None = None, *, savepoint: bool = True, timeout: float | None = None
    ) -> str | None:
        """Stop a streaming job after its current batch, and return the location of the savepoint.

        Args:
            target: directory for the savepoint; by default that of the cluster.
            savepoint: False takes none; then the location is that of the job's checkpoint, or None where it has none.
            timeout: how long to wait for it; it goes on after that.

        Raises SavepointError when that failed; the job may still run.
        """
        wish = {"targetDirectory": target, "drain": False, "savepoint": savepoint}
        outcome = await carry_out(self._caller, self.job_id, STOP, wish, patience=timeout)
        return outcome.get("location") or None

    async def savepoint(self, target: str | None = None, *, cancel: bool = False, timeout: float | None = None) -> str:
        """Take a savepoint of a running streaming job, and return its location.

        Args:
            target: directory for it; by default that of the cluster.
            cancel: end the job once the savepoint is complete.
            timeout: how long to wait for it; it goes on after that.

        Raises SavepointError.
        """
        wish = {"target-directory": target, "cancel-job": cancel}
        outcome = await carry_out(self._caller, self.job_id, SAVEPOINT, wish, patience=timeout)
        return Answer(outcome, "the savepoint").text("location")

    async def checkpoint(self, *, timeout: float | None = None) -> dict[str, Any]:
        """Wait until everything that was read so far is committed, and return the last batch of it."""
        return await carry_out(
            self._caller, self.job_id, CHECKPOINT, {"checkpointType": "CONFIGURED"}, patience=timeout
        )

    async def heartbeat(self) -> None:
        """Keep a job alive that was submitted with a `client_heartbeat_timeout`."""
        told = {"expiredTimestamp": round(time.time() * 1000)}
        await self._caller.call(
            with_json("PATCH", f"/jobs/{self.job_id}/clientHeartbeat", told, missing=JobNotFoundError)
        )

    async def session(self) -> str:
        """The Spark Connect URL of an interactive job, with its credential. Raises JobStateError while it does not run."""
        answer = Answer(await self._caller.json(of_job(self.job_id, "/session")), "the session")
        return answer.text("remote")

    # -- logs -------------------------------------------------------------------------------------------------------

    async def attempts(self) -> tuple[AttemptInfo, ...]:
        """The attempts that are still kept, oldest first, with their logs."""
        return AttemptInfo.all_of(await self._caller.json(of_job(self.job_id, "/attempts")))

    async def logs(self, name: str = "stdout", *, attempt: int | None = None, tail: int | None = None) -> str:
        """What an attempt wrote.

        Args:
            name: `stdout`, `stderr`, `events` or `jvm`.
            attempt: which one; the last by default.
            tail: return only this many lines from the end.
        """
        answer = await self._caller.call(self._log_request(name, attempt, tail))
        return answer.body.decode("utf-8", "replace")

    async def log_chunks(
        self, name: str = "stdout", *, attempt: int | None = None, tail: int | None = None
    ) -> AsyncGenerator[bytes, None]:
        """As `logs`, piece by piece, for logs that are large."""
        answer = await self._caller.open(self._log_request(name, attempt, tail))
        try:
            if answer.chunks is not None:
                async for chunk in answer.chunks:
                    yield chunk
        finally:
            await answer.close()

    def _log_request(self, name: str, attempt: int | None, tail: int | None) -> Request:
        where = f"/logs/{segment(name)}" if attempt is None else f"/attempts/{attempt}/logs/{segment(name)}"
        return of_job(self.job_id, where, None if tail is None else {"tail": str(tail)})


class JobClient:
    """A job, by its id. The blocking twin of AsyncJobClient."""

    def __init__(self, job: AsyncJobClient) -> None:
        self._job = job

    @property
    def job_id(self) -> JobID:
        return self._job.job_id

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.job_id}>"

    def status(self) -> JobStatus:
        return run(self._job.status())

    def details(self) -> dict[str, Any]:
        """See AsyncJobClient.details."""
        return run(self._job.details())

    def exceptions(self) -> tuple[JobException, ...]:
        """See AsyncJobClient.exceptions."""
        return run(self._job.exceptions())

    def lineage(self) -> dict[str, Any]:
        """See AsyncJobClient.lineage."""
        return run(self._job.lineage())

    def wait(self, timeout: float | None = None) -> JobResult:
        """See AsyncJobClient.wait."""
        return run(self._job.wait(timeout))

    def result(self, timeout: float | None = None) -> JobResult:
        """See AsyncJobClient.result."""
        return run(self._job.result(timeout))

    def events(self, *, logs: bool = False) -> Iterator[JobEvent]:
        """See AsyncJobClient.events."""
        return iterate(self._job.events(logs=logs))

    def cancel(self, *, keep_checkpoint: bool | None = None) -> None:
        """See AsyncJobClient.cancel."""
        run(self._job.cancel(keep_checkpoint=keep_checkpoint))

    def stop(self, target: str | None = None, *, savepoint: bool = True, timeout: float | None = None) -> str | None:
        """See AsyncJobClient.stop."""
        return run(self._job.stop(target, savepoint=savepoint, timeout=timeout))

    def savepoint(self, target: str | None = None, *, cancel: bool = False, timeout: float | None = None) -> str:
        """See AsyncJobClient.savepoint."""
        return run(self._job.savepoint(target, cancel=cancel, timeout=timeout))

    def checkpoint(self, *, timeout: float | None = None) -> dict[str, Any]:
        """See AsyncJobClient.checkpoint."""
        return run(self._job.checkpoint(timeout=timeout))

    def heartbeat(self) -> None:
        """See AsyncJobClient.heartbeat."""
        run(self._job.heartbeat())

    def session(self) -> str:
        """See AsyncJobClient.session."""
        return run(self._job.session())

    def attempts(self) -> tuple[AttemptInfo, ...]:
        """See AsyncJobClient.attempts."""
        return run(self._job.attempts())

    def logs(self, name: str = "stdout", *, attempt: int | None = None, tail: int | None = None) -> str:
        """See AsyncJobClient.logs."""
        return run(self._job.logs(name, attempt=attempt, tail=tail))

    def log_chunks(
        self, name: str = "stdout", *, attempt: int | None = None, tail: int | None = None
    ) -> Iterator[bytes]:
        """See AsyncJobClient.log_chunks."""
        return iterate(self._job.log_chunks(name, attempt=attempt, tail=tail))


def _mapping(data: object, what: str) -> dict[str, Any]:
    if not isinstance(data, Mapping):
        raise ClusterError(f"{what} is not a JSON object; is there a Firesteel node at this address?")
    return dict(data)
