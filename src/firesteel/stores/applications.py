"""ApplicationStore: the application that a cluster lives for. What stands here is what a restarted node goes on with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from firesteel.ha.protocols import NEW, Epoch, StateStore
from firesteel.types import JobID, parse_job_id

from .codec import decode, encode, take
from .job_graphs import Submission

_PREFIX = "applications"


class ApplicationState(StrEnum):
    """Where an application stands: Flink's names."""

    CREATED = "CREATED"
    RUNNING = "RUNNING"
    FAILING = "FAILING"
    FAILED = "FAILED"
    CANCELING = "CANCELING"
    CANCELED = "CANCELED"
    FINISHED = "FINISHED"

    @property
    def terminal(self) -> bool:
        return self in (ApplicationState.FAILED, ApplicationState.CANCELED, ApplicationState.FINISHED)


_A = ApplicationState
TRANSITIONS: Mapping[ApplicationState, frozenset[ApplicationState]] = {
    _A.CREATED: frozenset({_A.RUNNING}),
    # A program and its jobs that end by themselves need no time to be ended.
    _A.RUNNING: frozenset({_A.FAILING, _A.CANCELING, _A.FINISHED, _A.FAILED, _A.CANCELED}),
    _A.FAILING: frozenset({_A.FAILED}),
    _A.CANCELING: frozenset({_A.CANCELED, _A.FAILED}),
    _A.FAILED: frozenset(),
    _A.CANCELED: frozenset(),
    _A.FINISHED: frozenset(),
}


@dataclass(frozen=True, slots=True)
class ApplicationRecord:
    program: Submission
    """The job that the program is; its id is that of the application."""
    state: ApplicationState = ApplicationState.CREATED
    timestamps: Mapping[str, float] = field(default_factory=dict)
    """When each state was entered."""
    failure: str = ""
    """Why it has failed, where no job says so."""

    @property
    def application_id(self) -> JobID:
        return self.program.job_id

    @property
    def ended_at(self) -> float | None:
        return self.timestamps.get(self.state.value) if self.state.terminal else None

    def entered(self, state: ApplicationState, now: float, failure: str = "") -> ApplicationRecord:
        """Raises ValueError for a state that cannot follow."""
        if state not in TRANSITIONS[self.state]:
            raise ValueError(f"an application that is {self.state.value} cannot become {state.value}")
        return replace(
            self, state=state, timestamps={**self.timestamps, state.value: now}, failure=failure or self.failure
        )

    def to_bytes(self) -> bytes:
        # The program is a record of its own kind, with its own version.
        return encode(
            {
                "job_id": self.application_id,
                "state": self.state.value,
                "timestamps": dict(self.timestamps),
                "failure": self.failure,
                "program": self.program.to_bytes().decode(),
            }
        )

    @staticmethod
    def from_bytes(path: str, raw: bytes) -> ApplicationRecord:
        """What `to_bytes` wrote. Raises UnreadableRecordError."""

        def build(data: Mapping[str, Any]) -> ApplicationRecord:
            job_id = parse_job_id(take(data, "job_id", str))
            program = Submission.from_bytes(f"{path}/{job_id}", take(data, "program", str).encode())
            stamps = {str(k): float(v) for k, v in take(data, "timestamps", dict).items()}
            return ApplicationRecord(program, ApplicationState(data["state"]), stamps, take(data, "failure", str))

        return decode(path, raw, build)


class ApplicationStore:
    """At most one: a cluster lives for one application, or for none."""

    def __init__(self, store: StateStore) -> None:
        self._store = store

    async def get(self) -> ApplicationRecord | None:
        """Raises UnreadableRecordError: then nobody knows what this cluster is for, and it must not go on."""
        for path, stored in (await self._store.list(_PREFIX)).items():
            return ApplicationRecord.from_bytes(path, stored.value)
        return None

    async def create(self, record: ApplicationRecord, *, epoch: Epoch) -> None:
        """Raises VersionConflictError when there is one of this id."""
        await self._store.put(_path(record), record.to_bytes(), epoch=epoch, expected=NEW)

    async def put(self, record: ApplicationRecord, *, epoch: Epoch) -> None:
        await self._store.put(_path(record), record.to_bytes(), epoch=epoch)


def _path(record: ApplicationRecord) -> str:
    return f"{_PREFIX}/{record.application_id}"
