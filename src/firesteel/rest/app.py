"""The application: every route, under its bare path and under /v1."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, FastAPI
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from firesteel import __version__
from firesteel.rest import errors
from firesteel.rest.context import RestContext
from firesteel.rest.native import routes

DESCRIPTION = """
Flink's REST API version 1, implemented by Firesteel for jobs on Apache Spark, and resources that Flink does not have.

Every path exists bare and under `/v1`. Errors have the body `{"errors": ["..."]}`.
"""


@dataclass(frozen=True, slots=True)
class Facade:
    """Another API that a node serves in addition to its own."""

    routers: tuple[APIRouter, ...]
    describe: Callable[[dict[str, Any]], dict[str, Any]]
    """Adds the schemas of its answers to the OpenAPI document."""


class RestApplication(FastAPI):
    facade: Facade

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            self.openapi_schema = self.facade.describe(super().openapi())
        return self.openapi_schema


def create_app(context: RestContext, facade: Facade) -> FastAPI:
    app = RestApplication(
        title="Firesteel",
        version=__version__,
        description=DESCRIPTION,
        docs_url=None,  # FastAPI's page loads scripts from elsewhere; ours is `native.documentation`
        redoc_url=None,
        openapi_url="/openapi.json",
        redirect_slashes=False,
    )
    app.facade = facade
    app.state.context = context
    errors.install(app)
    for router in (*routes.ROUTERS, *facade.routers):
        app.include_router(router)
    return app


async def warm(app: FastAPI) -> None:
    """Make FastAPI build its tables before the first request has to wait for them, which takes most of a second.

    Blocks: run it in a loop of another thread.
    """

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(_message: Message) -> None:
        pass

    scope: Scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": "/no/such/path",
        "raw_path": b"/no/such/path",
        "root_path": "",
        "query_string": b"",
        "headers": [],
        "client": None,
        "server": None,
    }
    await app(scope, receive, send)


class TidyPaths:
    """Serves every path under /v1 too, and ignores a trailing slash.

    The requested path is kept for error messages.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            path: str = scope["path"]
            tidy = path.rstrip("/") or "/"
            if tidy == "/v1" or tidy.startswith("/v1/"):
                tidy = tidy.removeprefix("/v1") or "/"
            scope = {**scope, "path": tidy, "firesteel.path": path}
        await self._app(scope, receive, send)
