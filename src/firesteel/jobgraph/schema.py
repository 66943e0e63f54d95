"""`job-graph.schema.json`, for editors that complete and check YAML: generated from the model.

`python -m firesteel.jobgraph.schema` writes it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .model import JobGraph

FILE = Path(__file__).with_name("job-graph.schema.json")

_SCALAR = {"type": ["string", "number", "boolean"]}
_VARIABLE = {"type": "string", "pattern": r"\$\{[^}]+\}"}


def job_graph_schema() -> dict[str, Any]:
    """The JSON schema of a pipeline file: that of the model, plus what reading a file adds to it."""
    schema = JobGraph.model_json_schema(by_alias=True, mode="validation")
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "Firesteel pipeline"
    definitions: dict[str, Any] = schema["$defs"]
    for definition in (*definitions.values(), schema):
        for name, field in definition.get("properties", {}).items():
            definition["properties"][name] = _relaxed(field)
        if "properties" in definition:
            tags = [n for n in ("kind", "type") if "const" in definition["properties"].get(n, {})]
            if tags:  # what tells the members of a union apart must be written, though it has a default in Python
                definition["required"] = sorted({*definition.get("required", ()), *tags})
    schema["properties"]["variables"] = {
        "type": "object",
        "description": "Names and defaults of the variables ${name} in the pipeline's strings; null: must be given.",
        "additionalProperties": {"type": ["string", "number", "boolean", "null"]},
    }
    return schema


def _relaxed(field: dict[str, Any]) -> dict[str, Any]:
    """Numbers and booleans may be written as a variable, and text options as numbers and booleans."""
    if field.get("additionalProperties") == {"type": "string"}:
        return {**field, "additionalProperties": _SCALAR}
    if field.get("type") in ("integer", "number", "boolean"):
        inner = {k: v for k, v in field.items() if k not in ("title", "default", "description")}
        outer = {k: v for k, v in field.items() if k in ("title", "default", "description")}
        return {**outer, "anyOf": [inner, _VARIABLE]}
    if "anyOf" in field and any(f.get("type") in ("integer", "number", "boolean") for f in field["anyOf"]):
        return {**field, "anyOf": [*field["anyOf"], _VARIABLE]}
    return field


def text() -> str:
    return json.dumps(job_graph_schema(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(), "utf-8")
