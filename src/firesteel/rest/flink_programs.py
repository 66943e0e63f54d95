"""`flink run` sends a program that Spark cannot run. It gets an error before it has sent the program, whatever its size."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from firesteel.rest.answers import errors

FLINK_PROGRAM = (
    "This is a Flink program, but Firesteel runs Spark jobs, not Flink programs: submit a job graph as JSON or YAML, "
    "with `firesteel run`, `curl` or the Python client."
)
FORM = "multipart/form-data"


class RefusesFlinkPrograms:
    """ASGI middleware of every node, whether it leads or not: a refused request is not forwarded either."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and _is_program(scope):
            await errors(400, [FLINK_PROGRAM])(scope, receive, send)
        else:
            await self._app(scope, receive, send)


def _is_program(scope: Scope) -> bool:
    if scope["method"] != "POST" or scope["path"].removeprefix("/v1").rstrip("/") != "/jobs":
        return False
    kind = Headers(scope=scope).get("content-type", "")
    return kind.partition(";")[0].strip().lower() == FORM
