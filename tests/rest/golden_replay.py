"""Send what a golden answer answers, and say in what way ours differs.

What is compared: the status, the shape of the body down to the leaves, values that come from a known set, ids and times, and of
the fields in `SAME_VALUES` the values themselves. Not compared: what depends on the job, the machine or the moment, and how
long lists are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import httpx

from firesteel.rest.states import EXECUTION_STATES
from firesteel.status import JobStatus

GOLDEN = Path(__file__).parents[1] / "contracts" / "flink_rest" / "golden"

_HEX_ID = re.compile(r"[0-9a-f]{32}")
_CLASS = re.compile(r"^(?:[a-z]\w*\.)+[A-Z]\w*: ")
_EPOCH_MS = 10**12
_NEVER = 2**63 - 1

_JOB_STATES = {s.value for s in JobStatus}
KNOWN_VALUES: tuple[set[str], ...] = (
    _JOB_STATES,
    set(EXECUTION_STATES),
    {"CREATED", "RUNNING", "FAILING", "FAILED", "CANCELING", "CANCELED", "FINISHED"},  # of an application
    {"IN_PROGRESS", "COMPLETED", "FAILED"},  # of a checkpoint, and of an operation
    {"STREAMING", "BATCH"},
    {"Default", "Adaptive", "AdaptiveBatch"},
    {"SUCCEEDED", "FAILED", "CANCELED", "UNKNOWN"},
    {"completed", "failed", "in_progress", "pending_or_failed"},
    {"CHECKPOINT", "UNALIGNED_CHECKPOINT", "SAVEPOINT", "SYNC_SAVEPOINT"},
    {"exactly_once", "at_least_once"},
    {"CANONICAL", "NATIVE"},
    {"pipelined_bounded", "blocking", "pipelined", "hybrid_full", "hybrid_selective"},
    {"ok", "deprecated"},
    {"ok", "low", "high"},
    {"success"},
)
_ENUM_KEYS = {
    "state",
    "status",
    "job-type",
    "jobType",
    "type",
    "schedulerType",
    "application-status",
    "className",
    "checkpoint_type",
    "mode",
    "savepointFormat",
    "exchange",
    "backpressureLevel",
    "backpressure-level",
}
SAME_VALUES = {
    # of a job and its plan
    "isStoppable",
    "job-type",
    "application-id",
    "application-status",
    "pending-operators",
    "job-parallelism",
    "operator",
    "operator_strategy",
    "num",
    "exchange",
    "truncated",
    # of vertices
    "subtask",
    "attempt",
    "taskmanager-id",
    "read-bytes-complete",
    "read-records-complete",
    "write-bytes-complete",
    "write-records-complete",
    "accumulated-backpressured-time",
    "backpressureLevel",
    "backpressure-level",
    "ratio",
    "endTimestamp",
    # of checkpoints
    "checkpointId",
    "className",
    "is_savepoint",
    "checkpoint_type",
    "alignment_buffered",
    "persisted_data",
    "index",
    "buffered",
    "processed",
    "persisted",
    "unaligned_checkpoint",
    "aborted",
    "mode",
    "interval",
    "min_pause",
    "max_concurrent",
    "enabled",
    "delete_on_cancellation",
    "checkpoint_storage",
    "unaligned_checkpoints",
    "tolerable_failed_checkpoints",
    "aligned_checkpoint_timeout",
    "checkpoints_after_tasks_finish",
    # of the cluster
    "refresh-interval",
    "flink-version",
    "web-submit",
    "web-cancel",
    "web-history",
    "dataPort",
    "jmxPort",
    "taskOffHeapMemory",
    "taskOffHeap",
    "mappedCount",
    "mappedUsed",
    "mappedMax",
}
"""Fields whose values the contract and what was asked settle, not the cluster: ours are Flink's."""
_STATUS_ID_KEYS = {"IN_PROGRESS", "COMPLETED"}


@dataclass(frozen=True)
class Golden:
    name: str
    method: str
    template: str
    """With parameters in braces, as the OpenAPI document has it."""
    path: str
    request_body: Any
    status: int
    content_type: str
    body: Any

    @property
    def is_error(self) -> bool:
        return isinstance(self.body, dict) and set(self.body) == {"errors"}


@cache
def goldens() -> Mapping[str, Golden]:
    return {file.stem: _read(file) for file in sorted(GOLDEN.glob("*.json"))}


def _read(file: Path) -> Golden:
    data = json.loads(file.read_text())
    request = data["request"]
    headers = {k.lower(): v for k, v in data["headers"].items()}
    return Golden(
        file.stem,
        request["method"],
        request["template"],
        request["path"],
        request.get("body"),
        data["status"],
        headers.get("content-type", ""),
        data["body"],
    )


def replay(
    golden: Golden, client: httpx.Client, substitutions: Mapping[str, str], *, files: Mapping[str, Any] | None = None
) -> list[str]:
    """The differences between our answer and the golden one, as `<where>: <what>`.

    `files` are sent in place of the body, as a form.
    """

    def here(text: str) -> str:
        for theirs, ours in substitutions.items():
            text = text.replace(theirs, ours)
        return text

    content = golden.request_body
    if content is not None and not isinstance(content, str):
        content = json.dumps(content)
    response = client.request(
        golden.method,
        here(golden.path),
        content=None if content is None or files else here(content),
        files=files,
        follow_redirects=False,
    )
    found: list[str] = []
    if response.status_code != golden.status:
        found.append(f"status: {response.status_code} in place of {golden.status}")
    if golden.method == "HEAD":
        return found
    if isinstance(golden.body, str):
        if response.headers["content-type"].partition(";")[0] != golden.content_type.partition(";")[0]:
            found.append(f"content type: {response.headers['content-type']} in place of {golden.content_type}")
        return found
    if golden.content_type and response.headers["content-type"] != golden.content_type:
        found.append(f"content type: {response.headers['content-type']} in place of {golden.content_type}")
        return found
    body = response.json()
    if golden.is_error:
        return [*found, *_compare_errors([here(e) for e in golden.body["errors"]], body)]
    return [*found, *_compare(golden.body, body, "$")]


def meaning(error: str) -> str:
    """The first line of an error, without the class of a Java exception."""
    line = error.partition("\n")[0]
    while (shorter := _CLASS.sub("", line)) != line:
        line = shorter
    return line


def _compare_errors(golden: list[str], body: Any) -> Iterator[str]:
    if not isinstance(body, dict) or set(body) != {"errors"}:
        yield "$: is no error"
        return
    errors = body["errors"]
    if not isinstance(errors, list) or not errors or not all(isinstance(e, str) for e in errors):
        yield "$.errors: is no list of texts"
    elif meaning(golden[0]) not in errors[0]:
        yield f"$.errors: {errors[0]!r} in place of {meaning(golden[0])!r}"


def _compare(golden: Any, ours: Any, where: str) -> Iterator[str]:
    if golden is None:
        return  # nobody knows what else may stand there
    kind = _kind(golden)
    if _kind(ours) != kind and not (kind == "float" and _kind(ours) == "int"):
        yield f"{where}: {_kind(ours)} in place of {kind}"
        return
    match golden:
        case dict():
            yield from _compare_objects(golden, ours, where)
        case list():
            yield from _compare_lists(golden, ours, where)
        case _ if where.rpartition(".")[2] in SAME_VALUES:
            if ours != golden:
                yield f"{where}: {ours!r} in place of {golden!r}"
        case str():
            yield from _compare_texts(golden, ours, where)
        case int() if not isinstance(golden, bool) and _EPOCH_MS < golden < _NEVER:
            if not (ours in (-1, 0) or ours > _EPOCH_MS):
                yield f"{where}: {ours} is no time in ms"


def _kind(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "bool"
        case int():
            return "int"
        case float() | "NaN":
            return "float"
        case str():
            return "text"
        case list():
            return "list"
        case _:
            return "object"


def _compare_objects(golden: dict[str, Any], ours: dict[str, Any], where: str) -> Iterator[str]:
    if where.endswith("[].jobs"):  # how many jobs of an application are in which state, of those that there are
        yield from (f"{where}.{key}: is no state" for key in ours.keys() - _JOB_STATES)
        return
    if golden and all(map(_HEX_ID.fullmatch, golden)):  # by id: which ids there are is a matter of the job
        if not ours:
            yield f"{where}: is empty"
        for key, value in ours.items():
            if not _HEX_ID.fullmatch(key):
                yield f"{where}.{key}: is no id"
            yield from _compare(next(iter(golden.values())), value, f"{where}.<id>")
        return
    for key in golden.keys() - ours.keys():
        yield f"{where}.{key}: is missing"
    for key in ours.keys() - golden.keys():
        yield f"{where}.{key}: is not in the contract"
    for key in golden.keys() & ours.keys():
        yield from _compare(golden[key], ours[key], f"{where}.{key}")


def _compare_lists(golden: list[Any], ours: list[Any], where: str) -> Iterator[str]:
    """Each of ours must be like one of theirs."""
    if golden and not ours:
        yield f"{where}: is empty"
    for item in ours:
        found = [sorted(_compare(theirs, item, f"{where}[]")) for theirs in golden]
        if found and all(found):
            yield from min(found, key=len)


def _compare_texts(golden: str, ours: str, where: str) -> Iterator[str]:
    if _HEX_ID.fullmatch(golden) and not _HEX_ID.fullmatch(ours):
        yield f"{where}: {ours!r} is no id"
    key = where.rpartition(".")[2]
    if key in _ENUM_KEYS or golden in _STATUS_ID_KEYS:
        known = set().union(*(values for values in KNOWN_VALUES if golden in values))
        if known and ours not in known:
            yield f"{where}: {ours!r} is none of {sorted(known)}"
