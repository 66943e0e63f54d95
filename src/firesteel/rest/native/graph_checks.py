"""Checks of graphs and paths that callers send, within bounded time (S25, S42, S43).

A small graph is checked here, which takes milliseconds whatever its content. A larger one, and every path that a caller
names, is checked by a worker process that can be killed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

from firesteel.errors import InvalidPipelineError, NoSavepointError, Problem, SavepointError
from firesteel.jobgraph.admission import Admitted, Policy, SubmittedDocument
from firesteel.jobgraph.limits import longest_value
from firesteel.jobgraph.model import JobGraph
from firesteel.rest.native.workers import TookTooLongError, Workers
from firesteel.sandbox.policy import SandboxPolicy
from firesteel.savepoint.verdict import Verdict
from firesteel.types import JobID

P = ParamSpec("P")
T = TypeVar("T")

SMALL = 16_384
"""The size of a small graph in characters, with an allowance for each value, and with the values of variables."""
SMALL_SQL = 8_192
"""Characters of all queries of a small graph."""
_PER_VALUE = 16

CHECK_CPU = 10
CHECK_SECONDS = 30.0
PLACE_CPU = 5
PLACE_SECONDS = 10.0


class GraphChecks:
    """The checks of a node. It starts a process when one is first needed."""

    def __init__(self, policy: Callable[[], SandboxPolicy | None] = lambda: None) -> None:
        """`policy` is called when a path has to be checked."""
        self._policy = policy
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="graph-checks-small")
        """A graph that takes long to check delays only other graphs."""
        self._graphs = Workers(2, "graph-checks", cpu=CHECK_CPU, seconds=CHECK_SECONDS)
        self._places = Workers(4, "places", cpu=PLACE_CPU, seconds=PLACE_SECONDS)
        """Separate workers, so that a host that never answers blocks no submissions."""

    async def admit(self, owner: str, source: SubmittedDocument, policy: Policy) -> Admitted:
        """Check the graph in `source` on behalf of `owner`, and write its canonical bytes.

        Raises:
            InvalidPipelineError: with all its problems, or when checking takes too long.
            RateLimitedError: too many large graphs of this owner are being checked.
        """
        if is_small(source):
            return await self.in_thread(_admitted, source, policy)
        request = {**source.to_json(), "work": "admit", "places": policy.places.value}
        try:
            found = await self._graphs.run(owner, request)
        except TookTooLongError as error:
            problem = Problem(f"the graph could not be checked: {error}", "split the job, or write shorter queries")
            raise InvalidPipelineError([problem]) from error
        if "problems" in found:
            raise InvalidPipelineError([Problem(**p) for p in found["problems"]])
        if "refused" in found:
            raise InvalidPipelineError(
                [Problem(f"the graph could not be checked: {found['refused']}", "split the job")]
            )
        return await self.in_thread(_readmitted, found["result"], policy)

    async def in_thread(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a check in a thread: it takes CPU and imports the SQL parser, which must not block the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, lambda: call(*args, **kwargs))

    async def job_of_savepoint(self, owner: str, path: str) -> JobID:
        """The job that the savepoint at `path`, which a caller named, belongs to.

        Raises:
            SavepointError: there is no savepoint, or it could not be read in time.
            RateLimitedError: too many paths of this owner are being checked.
        """
        try:
            sandbox = await asyncio.to_thread(self._sandbox, owner)
            found = await self._places.run(owner, {"work": "savepoint", "path": path, "sandbox": sandbox})
        except TookTooLongError as error:
            raise SavepointError(f"the savepoint {path} could not be read: {error}") from error
        if "refused" in found:
            raise SavepointError(str(found["refused"]))
        return JobID(found["result"]["job_id"])

    def _sandbox(self, owner: str) -> dict[str, Any] | None:
        policy = self._policy()
        sandbox = policy.task(owner) if policy is not None else None
        return sandbox.to_json() if sandbox is not None else None

    async def fit_of_savepoint(self, owner: str, path: str, canonical: bytes) -> Verdict | None:
        """Whether a graph can start from the state at `path`; None if that cannot be determined here.

        Raises:
            NoSavepointError: there is certainly no savepoint and no kept checkpoint.
            RateLimitedError: too many paths of this owner are being checked.
        """
        try:
            sandbox = await asyncio.to_thread(self._sandbox, owner)
            found = await self._places.run(
                owner, {"work": "fit", "path": path, "graph": canonical.decode("ascii"), "sandbox": sandbox}
            )
        except TookTooLongError:
            return None
        if found.get("absent"):
            raise NoSavepointError(str(found["refused"]))
        return Verdict.from_json(found["result"]) if "result" in found else None

    async def close(self) -> None:
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._graphs.close()
        self._places.close()


def _admitted(source: SubmittedDocument, policy: Policy) -> Admitted:
    admitted = source.admitted(policy)
    assert admitted.canonical  # written here, in the thread
    return admitted


def _readmitted(canonical: str, policy: Policy) -> Admitted:
    graph = JobGraph.of_canonical(canonical.encode("ascii"))
    if problems := policy.refuses(graph):
        raise InvalidPipelineError(problems)
    return Admitted(graph)


def is_small(source: SubmittedDocument) -> bool:
    """Whether the checks of this graph are certain to be quick."""
    if source.yaml is not None:
        return _is_small_yaml(source.yaml, source.variables) and _is_small(dict(source.on_top), None)
    return _is_small(
        {**source.data, **source.on_top} if isinstance(source.data, dict) else source.data, source.variables
    )


def _is_small(data: Any, variables: Mapping[str, str] | None) -> bool:
    weight, sql, references = 0, 0, 0
    pending = [(data, False), (dict(variables or {}), False)]
    while pending:
        value, is_query = pending.pop()
        weight += _PER_VALUE
        match value:
            case dict():
                weight += sum(len(k) for k in value if isinstance(k, str))
                pending.extend((inner, key == "query") for key, inner in value.items())
            case list():
                pending.extend((inner, is_query) for inner in value)
            case str():
                weight += len(value)
                references += value.count("${")
                sql += len(value) if is_query else 0
        if weight > SMALL or sql > SMALL_SQL or len(pending) > SMALL:
            return False
    declared = data.get("variables") if isinstance(data, dict) else None
    brought = references * longest_value(declared, variables or {})
    return sql + brought <= SMALL_SQL and weight + brought <= SMALL


def _is_small_yaml(text: str, variables: Mapping[str, str] | None) -> bool:
    """False for a text with anchors (`&`) or many variables, whose final size is only known after parsing."""
    references = text.count("${")
    brought = references * longest_value(None, variables or {})
    return len(text) + brought <= SMALL_SQL and "&" not in text and references <= 8
