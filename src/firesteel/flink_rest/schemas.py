"""The schemas of Flink's answers: `schemas.json`, made from its OpenAPI document by `scripts/flink_schemas.py`.

A node does not check answers against them; tests do, and the OpenAPI document of a node contains them.
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any

import orjson


@cache
def published() -> dict[str, Any]:
    """`operations`: the success status and the schema of the answer, by method and path; `schemas` that these refer to."""
    content: dict[str, Any] = orjson.loads(resources.files(__package__).joinpath("schemas.json").read_bytes())
    return content


def describe(document: dict[str, Any]) -> dict[str, Any]:
    """The OpenAPI document of a node, with the schemas of the answers that Flink specifies."""
    for name, operation in published()["operations"].items():
        method, _, path = name.partition(" ")
        answers = document["paths"].get(path, {}).get(method.lower(), {}).get("responses", {})
        if (success := answers.get(str(operation["status"]))) is not None:
            success["content"] = {"application/json": {"schema": operation["schema"]}}
    document["components"]["schemas"] |= published()["schemas"]
    return document
