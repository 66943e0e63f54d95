"""Write what Flink says of its answers to src/firesteel/flink_rest/schemas.json, from its OpenAPI document.

The document is generated from Java classes, and Flink's own answers do not fit it everywhere: custom serialisers, nulls and NaN
are not in it. What is amended here is what the golden answers show to be wrong, and no more; a test has them all fit.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
DOCUMENT = ROOT / "tests" / "contracts" / "flink_rest" / "rest_v1_dispatcher.yml"
FILE = ROOT / "src" / "firesteel" / "flink_rest" / "schemas.json"
NOTICE = (
    "From docs/static/generated/rest_v1_dispatcher.yml of Apache Flink 2.3.0, Copyright The Apache Software Foundation, Apache "
    "License 2.0. Changed: the answers only, amended by scripts/flink_schemas.py, which writes this file."
)
PREFIX = "flink."
"""Before Flink's names, which are beside ours in the document of a node."""

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
_NOTHING = {"type": "object", "maxProperties": 0}
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
_UNSPECIFIED = {"GET /jars/{jarid}/plan": "POST /jars/{jarid}/plan"}
"""Operations that the document lacks, and those that answer the same."""


def render() -> str:
    document = yaml.safe_load(DOCUMENT.read_text("utf-8"))
    schemas = _amended(document["components"]["schemas"])
    operations = dict(_operations(document))
    operations |= {ours: operations[theirs] for ours, theirs in _UNSPECIFIED.items()}
    used = _reachable(operations, schemas)
    content = {
        "notice": NOTICE,
        "operations": operations,
        "schemas": {f"{PREFIX}{name}": schemas[name] for name in used},
    }
    return json.dumps(_renamed(content), indent=1, sort_keys=True) + "\n"


def _operations(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            ((status, response),) = operation["responses"].items()
            content = list(response.get("content", {}).values())
            schema = content[0]["schema"] if content else _NOTHING
            yield f"{method.upper()} {path}", {"status": int(status), "schema": _with_nan(schema)}


def _amended(schemas: dict[str, Any]) -> dict[str, Any]:
    amended = {name: _with_nan(schema) for name, schema in schemas.items()} | _REPLACED
    for name, field in _NULLABLE:
        properties = amended[name]["properties"]
        properties[field] = {"anyOf": [properties[field], {"type": "null"}]}
    for name, names in _OTHER_NAMES.items():
        amended[name]["properties"] = {names.get(p, p): s for p, s in amended[name]["properties"].items()}
    # Nothing tells the three kinds of outcome apart, and there may be none yet.
    outcome = amended["AsynchronousOperationResult"]["properties"]
    outcome["operation"] = {"anyOf": [*outcome["operation"]["oneOf"], {"type": "null"}]}
    return amended


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


_SCHEMAS = "#/components/schemas/"
_REFERENCE = re.compile(rf'"{_SCHEMAS}(\w+)"')


def _reachable(operations: dict[str, Any], schemas: dict[str, Any]) -> set[str]:
    used: set[str] = set()
    todo = _REFERENCE.findall(json.dumps(operations))
    while todo:
        name = todo.pop()
        if name not in used:
            used.add(name)
            todo += _REFERENCE.findall(json.dumps(schemas[name]))
    return used


def _renamed(content: Any) -> Any:
    """With our prefix in references, of which some are in mappings of discriminators."""
    match content:
        case str() if content.startswith(_SCHEMAS):
            return f"{_SCHEMAS}{PREFIX}{content.removeprefix(_SCHEMAS)}"
        case dict():
            return {key: _renamed(value) for key, value in content.items()}
        case list():
            return [_renamed(value) for value in content]
        case _:
            return content


if __name__ == "__main__":
    FILE.write_text(render(), "utf-8")
