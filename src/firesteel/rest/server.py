"""Serving an application over HTTP, on the node's event loop and without signal handlers of its own."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Iterator

import uvicorn
from starlette.types import ASGIApp

from firesteel.errors import FiresteelError
from firesteel.rest.security.connections import Connections, GuardedListener

logger = logging.getLogger(__name__)

GRACE_SECONDS = 2
"""How long requests in progress may take when the node ends; event streams are cut off then."""
BACKLOG = 1024


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Do nothing, as the entrypoint handles signals."""
        yield


@contextlib.asynccontextmanager
async def serving(
    app: ASGIApp,
    *,
    host: str,
    port: int,
    context: ssl.SSLContext | None = None,
    protocol: type[asyncio.Protocol] | str = "httptools",
    connections: Connections | None = None,
) -> AsyncIterator[int]:
    """Serve `app` until the block is left, with at most these `connections`. Yields the port."""
    listener = await asyncio.to_thread(_listen, host, port)
    if connections is not None:
        listener = GuardedListener(listener, connections)
    config = uvicorn.Config(
        app,
        http=protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=GRACE_SECONDS,
        timeout_keep_alive=75,
    )
    config.load()
    if context is not None:
        config.ssl = context
    server = _Server(config)
    running = asyncio.get_running_loop().create_task(server.serve(sockets=[listener]), name="rest-server")
    try:
        while not server.started:
            if running.done():
                await running
                raise FiresteelError(f"the REST server on {host}:{port} ended right after its start")
            await asyncio.sleep(0.005)
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        await asyncio.wait([running])
        listener.close()
        if not running.cancelled() and (error := running.exception()) is not None:
            logger.error("the REST server ended with an error: %s", error)


def _listen(host: str, port: int) -> socket.socket:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise FiresteelError(f"rest.bind-address '{host}' is not an address of this machine: {error}") from error
    family, kind, protocol, _, address = found[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise FiresteelError(
            f"the REST endpoint cannot listen on {host}:{port}: {error.strerror}; set rest.port to a free port, or to 0"
        ) from error
    return listener


def url(host: str, port: int, *, tls: bool) -> str:
    shown = f"[{host}]" if ":" in host else host
    return f"{'https' if tls else 'http'}://{shown}:{port}"
