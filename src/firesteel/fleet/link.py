"""One worker at this leader: what it has said of itself, and the commands that it has not answered yet."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from firesteel.engines.record import EngineRecord
from firesteel.fleet.contact import Contact
from firesteel.rpc.calls import error_of
from firesteel.rpc.messages import (
    NOT_ENDED,
    AttemptHeld,
    Command,
    CommandAnswer,
    Registration,
    WorkerInfo,
    encode,
    plain,
    raw,
)
from firesteel.types import AttemptId, JobID

_IDS = itertools.count(1)
"""Of commands. A worker tells commands of one leader from those of another by their epochs."""


class WorkerRestartedError(Exception):
    """The process of the worker that was to answer is another one now."""


@dataclass(slots=True)
class _Pending:
    command: Command
    answer: asyncio.Future[msgspec.Raw]


@dataclass(slots=True)
class WorkerLink:
    """Of one worker, from its first registration at this leader on. `info` is None before that."""

    worker: str
    contact: Contact
    info: WorkerInfo | None = None
    name: str = ""
    draining: bool = False
    revoked: bool = False
    lost: str = ""
    """Why it counts as gone; empty while it does not."""
    registered_at: float = 0.0
    attempts: dict[AttemptId, msgspec.Raw] = field(default_factory=dict)
    """Those that it has, with their results, or null."""
    engines: dict[str, EngineRecord] = field(default_factory=dict)
    numbers: dict[JobID, set[int]] = field(default_factory=dict)
    """The attempts of which it has files, by job."""
    progress: dict[AttemptId, msgspec.Raw] = field(default_factory=dict)
    _pending: dict[int, _Pending] = field(default_factory=dict)
    _stream: asyncio.Queue[bytes | None] | None = None
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    # -- what it says ---------------------------------------------------------------------------------------------

    def register(self, registration: Registration, now: float, wall: float) -> None:
        """Whatever it said before is replaced. Commands that were not answered are sent again, to the same process."""
        before = self.info
        self.info = registration.info
        self.name = registration.info.name
        self.lost = ""
        self.registered_at = wall
        self.contact = Contact(registration.info.policy, registration.info.isolation_timeout, now, heard=True)
        self.attempts = {a.attempt: a.result for a in registration.attempts}
        self.progress = {a: p for a, p in self.progress.items() if a in self.attempts}
        records = [EngineRecord.from_json(plain(data)) for data in registration.engines]
        self.engines = {r.engine_id: replace(r, worker=self.worker) for r in records}
        self.numbers = {JobID(job): set(numbers) for job, numbers in registration.files.items()}
        self.hang_up()
        if before is not None and before.incarnation != registration.info.incarnation:
            self._fail_pending()
        self.wake()

    @property
    def jobs(self) -> Collection[JobID]:
        """Those of which it has files."""
        return self.numbers.keys()

    def note_start(self, attempt: AttemptId) -> None:
        self.numbers.setdefault(attempt.job_id, set()).add(attempt.number)
        self.attempts.setdefault(attempt, NOT_ENDED)

    def note_end(self, held: AttemptHeld) -> None:
        self.attempts[held.attempt] = held.result

    # -- commands -------------------------------------------------------------------------------------------------

    async def ask(self, epoch: int, method: str, args: Any) -> msgspec.Raw:
        """Send a command to the process that is registered now, and wait for its answer.

        Raises WorkerRestartedError when another process has taken its place, or what the command raised.
        """
        assert self.info is not None
        command = Command(next(_IDS), epoch, self.info.incarnation, method, raw(args))
        pending = _Pending(command, asyncio.get_running_loop().create_future())
        self._pending[command.id] = pending
        if self._stream is not None:
            self._stream.put_nowait(encode(command))
        try:
            return await pending.answer
        finally:
            self._pending.pop(command.id, None)

    def answered(self, answer: CommandAnswer) -> None:
        pending = self._pending.get(answer.id)
        if pending is None or pending.answer.done():
            return  # nobody waits for it any more
        if answer.failure is not None:
            pending.answer.set_exception(error_of(answer.failure))
        else:
            pending.answer.set_result(answer.value)

    def open_stream(self) -> asyncio.Queue[bytes | None]:
        """A new stream of commands; it begins with those that were not answered. One that was open before ends."""
        self.hang_up()
        stream: asyncio.Queue[bytes | None] = asyncio.Queue()
        for pending in self._pending.values():
            stream.put_nowait(encode(pending.command))
        self._stream = stream
        self.wake()
        return stream

    def close_stream(self, stream: asyncio.Queue[bytes | None]) -> None:
        if self._stream is stream:
            self._stream = None

    def hang_up(self) -> None:
        if self._stream is not None:
            self._stream.put_nowait(None)
            self._stream = None

    @property
    def is_open(self) -> bool:
        return self._stream is not None

    def give_up(self, why: str) -> None:
        """Nothing that ran there runs any more."""
        self.lost = why
        self.hang_up()
        self._fail_pending()
        self.engines = {}
        self.wake()

    def _fail_pending(self) -> None:
        for pending in self._pending.values():
            if not pending.answer.done():
                pending.answer.set_exception(WorkerRestartedError(self.worker))

    # -- waiting for a change -------------------------------------------------------------------------------------

    def wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def changed(self) -> None:
        await self._changed.wait()
