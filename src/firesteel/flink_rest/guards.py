"""Who gets a fixed answer (`table.Asker`), and the facts that such an answer can contain."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from firesteel.config.sections import Role
from firesteel.errors import JobNotFoundError
from firesteel.flink_rest.contract import no_job
from firesteel.flink_rest.reading import attempt_of, read_job, read_subtask, read_vertex
from firesteel.flink_rest.table import Asker
from firesteel.flink_rest.taskmanagers import engine_with_files
from firesteel.rest.context import Caller, RestContext
from firesteel.rest.errors import HttpError
from firesteel.rest.security.principals import Principal, require
from firesteel.types import JobID

Facts = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Question:
    context: RestContext
    principal: Principal
    path: Mapping[str, str]
    """The checked parameters of the path, with hex ids in lower case."""

    @property
    def caller(self) -> Caller:
        return Caller(self.principal, self.context.gateway)

    @property
    def job_id(self) -> JobID:
        return JobID(self.path["jobid"])


async def _anybody(_: Question) -> Facts:
    return {}


async def _sees_job(question: Question) -> Facts:
    await read_job(question.context, question.caller, question.job_id)
    return {}


async def _sees_vertex(question: Question) -> Facts:
    vertex = await read_vertex(question.context, question.caller, question.job_id, question.path["vertexid"])
    execution = vertex.execution
    return {"parallelism": vertex.parallelism, "attempt": execution.attempt, "endpoint": execution.endpoint}


async def _sees_attempt(question: Question) -> Facts:
    path, subtask = question.path, int(question.path["subtaskindex"])
    vertex = await read_subtask(question.context, question.caller, question.job_id, path["vertexid"], subtask)
    return {"attempt": attempt_of(vertex, int(path["attempt"])).attempt}


async def _changes_job(question: Question) -> Facts:
    require(question.principal, Role.OPERATOR)
    try:
        question.caller.write(question.job_id)
    except JobNotFoundError:
        raise no_job(question.job_id) from None
    return {}


async def _sees_engine(question: Question) -> Facts:
    await engine_with_files(question.context, question.caller, question.path["taskmanagerid"])
    return {}


async def _deletes_data_set(question: Question) -> Facts:
    require(question.principal, Role.OPERATOR)
    return {"drawn": new_trigger()}


async def _deleted_data_set(question: Question) -> Facts:
    trigger_id = question.path["triggerid"]
    if not is_trigger(trigger_id):
        raise HttpError(404, f"Operation not found under key: {trigger_id}")
    return {}


GUARDS: Mapping[Asker, Callable[[Question], Awaitable[Facts]]] = {
    Asker.ANYBODY: _anybody,
    Asker.SEES_JOB: _sees_job,
    Asker.SEES_VERTEX: _sees_vertex,
    Asker.SEES_ATTEMPT: _sees_attempt,
    Asker.CHANGES_JOB: _changes_job,
    Asker.SEES_ENGINE: _sees_engine,
    Asker.DELETES_DATA_SET: _deletes_data_set,
    Asker.DELETED_DATA_SET: _deleted_data_set,
}


def new_trigger() -> str:
    """An id that any later leader can verify without having stored it."""
    drawn = secrets.token_hex(8)
    return drawn + _mark(drawn)


def is_trigger(trigger_id: str) -> bool:
    return _mark(trigger_id[:16]) == trigger_id[16:]


def _mark(drawn: str) -> str:
    return hashlib.sha256(f"data set deletion {drawn}".encode()).hexdigest()[:16]
