"""What a node says about the graphs and places that callers send: soon, or not at all (S25, S42, S43).

A small graph is checked here: whatever is in it, that takes milliseconds. A larger one, and every place that a caller names, is
looked at by a worker that can be killed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from firesteel.errors import InvalidPipelineError, Problem, SavepointError
from firesteel.jobgraph.model import JobGraph
from firesteel.rest.native.graph_input import graph_of_json, graph_of_yaml, in_thread
from firesteel.rest.native.graph_limits import longest_value
from firesteel.rest.native.workers import TookTooLongError, Workers
from firesteel.sandbox.policy import SandboxPolicy
from firesteel.savepoint.verdict import Verdict
from firesteel.types import JobID

SMALL = 16_384
"""Characters, with an allowance for each value, and with what variables bring in."""
SMALL_SQL = 8_192
"""Characters of all queries of a small graph."""
_PER_VALUE = 16

CHECK_CPU = 10
CHECK_SECONDS = 30.0
PLACE_CPU = 5
PLACE_SECONDS = 10.0


class GraphChecks:
    """Of a node. Holds no process before one is needed."""

    def __init__(self, policy: Callable[[], SandboxPolicy | None] = lambda: None) -> None:
        """`policy` is asked when a place has to be looked at."""
        self._policy = policy
        self._graphs = Workers(2, "graph-checks", cpu=CHECK_CPU, seconds=CHECK_SECONDS)
        self._places = Workers(4, "places", cpu=PLACE_CPU, seconds=PLACE_SECONDS)
        """Of their own: a host that never answers keeps nobody from submitting."""

    async def graph_of_json(
        self, owner: str, data: Any, variables: Mapping[str, str] | None, *, local_files: bool = False
    ) -> JobGraph:
        """As the function of that name, on behalf of `owner`.

        Raises:
            InvalidPipelineError: with everything that is wrong with it; also when that takes too long to find out.
            RateLimitedError: enough large graphs of this owner are being checked.
        """
        if is_small(data, variables):
            return await in_thread(graph_of_json, data, variables, local_files=local_files)
        return await self._checked(owner, "graph-json", data, variables, local_files=local_files)

    async def graph_of_yaml(
        self, owner: str, text: str, variables: Mapping[str, str] | None = None, *, local_files: bool = False
    ) -> JobGraph:
        """As `graph_of_json`."""
        if is_small_yaml(text, variables):
            return await in_thread(graph_of_yaml, text, variables or {}, local_files=local_files)
        return await self._checked(owner, "graph-yaml", text, variables, local_files=local_files)

    async def job_of_savepoint(self, owner: str, path: str) -> JobID:
        """Whose savepoint stands at `path`, a place that a caller named.

        Raises:
            SavepointError: there is none, or it could not be read in time.
            RateLimitedError: enough places of this owner are being looked at.
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

    async def fit_of_savepoint(self, owner: str, path: str, graph: Mapping[str, Any]) -> Verdict | None:
        """Whether a graph (plain JSON) can go on from what stands at `path`; None when that cannot be told from here.

        Raises:
            RateLimitedError: enough places of this owner are being looked at.
        """
        try:
            sandbox = await asyncio.to_thread(self._sandbox, owner)
            found = await self._places.run(
                owner, {"work": "fit", "path": path, "graph": dict(graph), "sandbox": sandbox}
            )
        except TookTooLongError:
            return None
        return Verdict.from_json(found["result"]) if "result" in found else None

    async def close(self) -> None:
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._graphs.close()
        self._places.close()

    async def _checked(
        self, owner: str, work: str, data: Any, variables: Mapping[str, str] | None, *, local_files: bool
    ) -> JobGraph:
        request = {"work": work, "data": data, "variables": variables, "local_files": local_files}
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
        return await in_thread(JobGraph.model_validate, found["result"])


def is_small(data: Any, variables: Mapping[str, str] | None) -> bool:
    """Whether the checks of this graph take little whatever they find."""
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


def is_small_yaml(text: str, variables: Mapping[str, str] | None) -> bool:
    """As `is_small`. How large a text with anchors (`&`) or many variables becomes cannot be seen before it is read."""
    references = text.count("${")
    brought = references * longest_value(None, variables or {})
    return len(text) + brought <= SMALL_SQL and "&" not in text and references <= 8
