"""The AttemptExecutor of a leader: attempts on its own host directly, those on workers over the wire."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from typing import Any

from firesteel.attempts.attempt import AttemptResult, AttemptState
from firesteel.errors import FiresteelError, SavepointError, WorkerLostError
from firesteel.fleet.registry import Fleet
from firesteel.jobmaster.executor import AttemptExecutor, Deployment, Presence
from firesteel.rpc.calls import attempt_args, deployment_args, result_of
from firesteel.rpc.messages import has_ended, plain, raw
from firesteel.savepoint.manifest import SavepointRequest
from firesteel.types import AttemptId, Guard, JobID


class FleetExecutor:
    """Implements AttemptExecutor. What is on a worker that was given up is over: nothing is waited for there."""

    def __init__(self, local: AttemptExecutor, fleet: Fleet) -> None:
        self._local = local
        self._fleet = fleet

    def place(self, attempt: AttemptId, worker: str) -> None:
        """See AttemptExecutor."""
        self._fleet.place(attempt, worker)

    def _remote(self, attempt: AttemptId) -> str | None:
        """The worker that has the attempt; None for one of this host."""
        worker = self._fleet.placed(attempt)
        return None if self._fleet.is_local(worker) else worker

    async def start(self, deployment: Deployment) -> None:
        """See AttemptExecutor."""
        worker = self._remote(deployment.attempt)
        if worker is None:
            await self._local.start(deployment)
            return
        await self._fleet.call(worker, "start", deployment_args(deployment))
        link = self._fleet.link(worker)
        if link is not None:
            link.note_start(deployment.attempt)

    async def find(self, attempt: AttemptId) -> Presence:
        """See AttemptExecutor. What is on a lost worker has ended: `wait` says how."""
        worker = self._remote(attempt)
        if worker is None:
            return await self._local.find(attempt)
        try:
            link = await self._fleet.connected(worker)
            if (result := link.attempts.get(attempt)) is not None:
                # A worker that registers names what it has, so there is no need to ask.
                return Presence.ENDED if has_ended(result) else Presence.RUNNING
            return Presence(await self._fleet.call(worker, "find", attempt_args(attempt)))
        except WorkerLostError:
            return Presence.ENDED

    async def wait(self, attempt: AttemptId) -> AttemptResult:
        """See AttemptExecutor."""
        worker = self._remote(attempt)
        return await (self._local.wait(attempt) if worker is None else self._fleet.result(attempt))

    async def cancel(self, attempt: AttemptId, *, guard: Guard) -> None:
        """See AttemptExecutor. The worker checks the epoch as late as possible."""
        worker = self._remote(attempt)
        if worker is None:
            await self._local.cancel(attempt, guard=guard)
            return
        guard()
        await self._unless_lost(worker, "cancel", attempt_args(attempt))

    async def stop(self, attempt: AttemptId) -> None:
        """See AttemptExecutor."""
        worker = self._remote(attempt)
        if worker is None:
            await self._local.stop(attempt)
            return
        await self._unless_lost(worker, "stop", attempt_args(attempt))

    async def fence(self, attempt: AttemptId, *, guard: Guard, unreachable: bool = False) -> AttemptResult:
        """See AttemptExecutor."""
        worker = self._remote(attempt)
        if worker is None:
            return await self._local.fence(attempt, guard=guard, unreachable=unreachable)
        guard()
        try:
            args = {**attempt_args(attempt), "unreachable": unreachable}
            return result_of(await self._fleet.call(worker, "fence", args))
        except WorkerLostError as error:
            link = self._fleet.link(worker)
            known = link.attempts.get(attempt) if link is not None else None
            if known is not None and has_ended(known):
                return result_of(plain(known))
            # Nobody has seen it end: should it wake up, it must not write (I27).
            return AttemptResult(AttemptState.CANCELED, ended_at=time.time(), note=str(error), given_up=True)

    async def checkpoint(self, attempt: AttemptId) -> dict[str, int]:
        """See AttemptExecutor."""
        worker = self._remote(attempt)
        if worker is None:
            return await self._local.checkpoint(attempt)
        batches: dict[str, int] = await self._fleet.call(worker, "checkpoint", attempt_args(attempt))
        return batches

    async def prepare_savepoint(self, location: str, request: SavepointRequest, *, owner: str = "") -> None:
        """See AttemptExecutor."""
        await self._local.prepare_savepoint(location, request, owner=owner)

    async def savepoint(
        self, location: str, attempt: AttemptId | None, *, stopped: bool = False, owner: str = ""
    ) -> dict[str, int]:
        """See AttemptExecutor. That of a running attempt is taken on its worker, which sees its files."""
        worker = self._remote(attempt) if attempt is not None else None
        if worker is None or attempt is None:
            return await self._local.savepoint(location, attempt, stopped=stopped, owner=owner)
        args = {**attempt_args(attempt), "location": location, "stopped": stopped, "owner": owner}
        try:
            batches: dict[str, int] = await self._fleet.call(worker, "savepoint", args)
        except WorkerLostError as error:
            raise SavepointError(f"the savepoint {location} was not taken: {error}") from error
        return batches

    async def savepoint_sizes(self, location: str, *, owner: str = "") -> dict[str, int]:
        """See AttemptExecutor."""
        return await self._local.savepoint_sizes(location, owner=owner)

    async def abandon_savepoint(self, location: str, *, owner: str = "") -> None:
        """See AttemptExecutor."""
        await self._local.abandon_savepoint(location, owner=owner)

    async def dispose_savepoint(self, location: str, *, owner: str = "", resumed: bool = False) -> None:
        """See AttemptExecutor."""
        await self._local.dispose_savepoint(location, owner=owner, resumed=resumed)

    async def progress(self, attempt: AttemptId) -> Mapping[str, Any]:
        """See AttemptExecutor. Workers report it by themselves, so they are not asked."""
        worker = self._remote(attempt)
        if worker is None:
            return await self._local.progress(attempt)
        link = self._fleet.link(worker)
        known = link.progress.get(attempt) if link is not None else None
        found: Mapping[str, Any] = plain(known) if known is not None else {}
        return found

    async def attempts(self, job_id: JobID) -> Sequence[int]:
        """See AttemptExecutor."""
        return sorted({*await self._local.attempts(job_id), *self._fleet.numbers(job_id)})

    async def tidied(self, attempt: AttemptId) -> None:
        """See AttemptExecutor."""
        worker = self._remote(attempt)
        if worker is None:
            await self._local.tidied(attempt)
            return
        link = self._fleet.link(worker)
        if link is None or not link.is_open:
            return
        with contextlib.suppress(FiresteelError):
            # What Spark counted is known a moment after the end.
            link.progress[attempt] = raw(await self._fleet.call(worker, "tidied", attempt_args(attempt)))

    async def prune(self, job_id: JobID, keep: int) -> None:
        """See AttemptExecutor."""
        await self._local.prune(job_id, keep)
        for worker in self._fleet.having(job_id):
            await self._unless_lost(worker, "prune", {"job": job_id, "keep": keep}, wait=False)

    async def forget(self, attempt: AttemptId, *, guard: Guard) -> None:
        """See AttemptExecutor. A worker that is away has nothing left that could run; it is told when it comes back."""
        worker = self._remote(attempt)
        if worker is None:
            await self._local.forget(attempt, guard=guard)
        else:
            guard()
            await self._unless_lost(worker, "forget", attempt_args(attempt), wait=False)
            if (link := self._fleet.link(worker)) is not None:
                link.attempts.pop(attempt, None)
        self._fleet.release(attempt)

    async def _unless_lost(self, worker: str, method: str, args: Mapping[str, Any], *, wait: bool = True) -> None:
        """Have it done, unless the worker was given up; without `wait`, also not when it is away at the moment."""
        link = self._fleet.link(worker)
        if not wait and (link is None or not link.is_open):
            return
        try:
            await self._fleet.call(worker, method, args)
        except WorkerLostError:
            return
        except FiresteelError:
            if wait:
                raise
