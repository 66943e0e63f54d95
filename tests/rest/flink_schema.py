"""The answers that Flink's OpenAPI document specifies, to hold others against."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import jsonschema_rs

from firesteel.flink_rest.coverage import ROWS
from firesteel.flink_rest.schemas import published


@dataclass(frozen=True)
class Operation:
    method: str
    path: str
    status: int
    """Of success."""
    schema: dict[str, Any]
    """Of the answer."""

    @property
    def name(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def properties(self) -> frozenset[str]:
        """That the answer may have at the top."""
        name = self.schema.get("$ref", "").rpartition("/")[2]
        return frozenset(published()["schemas"].get(name, {}).get("properties", {}))

    def problems(self, body: Any) -> list[str]:
        """Why `body` is not what the document says."""
        validator = jsonschema_rs.Draft4Validator(
            {"allOf": [self.schema], "components": {"schemas": published()["schemas"]}}
        )
        return [f"{'/'.join(map(str, e.instance_path))}: {e.message[:200]}" for e in validator.iter_errors(body)]


@cache
def operations() -> dict[str, Operation]:
    """Those that are in Flink's document."""
    found = [Operation(*name.split(" "), **data) for name, data in published()["operations"].items()]
    unspecified = {f"{row.method} {row.path}" for row in ROWS if not row.specified}
    return {o.name: o for o in found if o.name not in unspecified}
