"""Flink's OpenAPI document, with its errors put right.

The document is generated from Java classes, and Flink's own answers do not fit it everywhere: custom serialisers, nulls and NaN
are not in it. What is amended here is what the golden answers show to be wrong, and no more; a test has them all fit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs
import yaml

DOCUMENT = Path(__file__).parents[1] / "contracts" / "flink_rest" / "rest_v1_dispatcher.yml"

_ID = {"type": "string", "pattern": "^[0-9a-f]{32}$"}
_METRICS = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["id"],
        "properties": {"id": {"type": "string"}, "value": {"type": "string"}},
    },
}
_NUMBER = {"anyOf": [{"type": "number"}, {"enum": ["NaN"]}]}
_AGGREGATED = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["id"],
        "properties": {"id": {"type": "string"}, **dict.fromkeys(("min", "max", "avg", "sum", "skew"), _NUMBER)},
        "additionalProperties": False,
    },
}
_REPLACED: dict[str, Any] = {
    # Described as the Java objects that they are; on the wire they are hex digits.
    "ApplicationID": _ID,
    "SlotSharingGroupId": _ID,
    "IntermediateDataSetID": _ID,
    "RescaleUUID": _ID,
    "ResourceID": {"type": "string"},
    # Written as bare arrays.
    "MetricCollectionResponseBody": _METRICS,
    "AggregatedMetricsResponseBody": _AGGREGATED,
    # Written in lower case.
    "ProcessingMode": {"enum": ["exactly_once", "at_least_once"]},
}
_NULLABLE = (
    ("CheckpointStatistics", "savepointFormat"),
    ("LatestCheckpoints", "completed"),
    ("LatestCheckpoints", "savepoint"),
    ("LatestCheckpoints", "failed"),
    ("LatestCheckpoints", "restored"),
    ("JarEntryInfo", "description"),
    ("VertexParallelismRescaleInfo", "preRescaleParallelism"),
    ("SlotSharingGroupRescaleInfo", "preRescaleSlots"),
    ("SchedulerStateSpan", "stringifiedException"),
)
_OTHER_NAMES: dict[str, dict[str, str]] = {
    "JobConfigInfo": {"jobId": "jid", "jobName": "name", "executionConfigInfo": "execution-config"},
}
"""Properties that the serialisers call otherwise."""


@dataclass(frozen=True)
class Operation:
    method: str
    path: str
    status: int
    """Of success."""
    schema: dict[str, Any] | None
    """Of the answer; None when it is `{}`."""
    properties: frozenset[str]
    """That the answer may have at the top."""

    @property
    def name(self) -> str:
        return f"{self.method} {self.path}"

    def problems(self, body: Any) -> list[str]:
        """Why `body` is not what the document says."""
        if self.schema is None:
            return [] if body == {} else ["it is not {}"]
        validator = jsonschema_rs.Draft4Validator({**self.schema, "components": _document()["components"]})
        return [f"{'/'.join(map(str, e.instance_path))}: {e.message[:200]}" for e in validator.iter_errors(body)]


@cache
def operations() -> dict[str, Operation]:
    return {o.name: o for o in _operations()}


def _operations() -> Iterator[Operation]:
    document = _document()
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            ((status, response),) = operation["responses"].items()
            content = list(response.get("content", {}).values())
            schema = {"allOf": [content[0]["schema"]]} if content else None
            yield Operation(method.upper(), path, int(status), schema, _properties(content, document))


def _properties(content: list[Any], document: dict[str, Any]) -> frozenset[str]:
    if not content:
        return frozenset()
    schema = content[0]["schema"]
    name = schema.get("$ref", "").rpartition("/")[2]
    names = _OTHER_NAMES.get(name, {})
    properties = document["components"]["schemas"].get(name, {}).get("properties", {})
    return frozenset(names.get(p, p) for p in properties)


@cache
def _document() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(DOCUMENT.read_text())
    schemas = document["components"]["schemas"]
    for name in schemas:
        schemas[name] = _with_nan(schemas[name])
    schemas.update(_REPLACED)
    for name, field in _NULLABLE:
        properties = schemas[name]["properties"]
        properties[field] = {"anyOf": [properties[field], {"type": "null"}]}
    # Nothing tells the three kinds of outcome apart, and there may be none yet.
    outcome = schemas["AsynchronousOperationResult"]["properties"]
    outcome["operation"] = {"anyOf": [*outcome["operation"]["oneOf"], {"type": "null"}]}
    return document


def _with_nan(schema: Any) -> Any:
    """Every number may be NaN, which is written as a text."""
    match schema:
        case {"type": "number"}:
            return _NUMBER
        case dict():
            return {key: _with_nan(value) for key, value in schema.items()}
        case list():
            return [_with_nan(value) for value in schema]
        case _:
            return schema
