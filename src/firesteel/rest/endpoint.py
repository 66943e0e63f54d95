"""The WebMonitorEndpoint: the REST API of one node, from its configuration to its address."""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import os
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import httpx
from starlette.types import ASGIApp, Receive, Scope, Send

from firesteel.blob.store import BlobStore
from firesteel.config import Configuration
from firesteel.config.fingerprint import fingerprint
from firesteel.config.sections import Authentication, Role
from firesteel.config.values import memory_bytes
from firesteel.dispatcher.gateway import DispatcherGateway
from firesteel.files import read_json, write_json
from firesteel.ha.protocols import Epoch, LeaderInformation, StateStore
from firesteel.processes import ProcessIdentity
from firesteel.rest.app import TidyPaths, create_app, warm
from firesteel.rest.context import RestContext
from firesteel.rest.forwarding import Forwarding, Leadership
from firesteel.rest.logs import JobLogs
from firesteel.rest.node_identity import Bearers, NodeIdentity
from firesteel.rest.security.audit import AuditLog
from firesteel.rest.security.door import Door
from firesteel.rest.security.identities import Identities
from firesteel.rest.security.mtls import ssl_context
from firesteel.rest.security.principals import EVERYBODY, Principal
from firesteel.rest.security.protocol import protocol_with
from firesteel.rest.security.startup import check_door
from firesteel.rest.server import serving, url
from firesteel.stores.secrets import NodeKey

LOCAL_FILE = "rest.json"
"""In the cluster's directory: where this machine's node is, and the token of its owner. For clients of the same user."""
PUBLIC = ("/healthz",)


class LeaderView(Protocol):
    """What the endpoint needs of the node around it."""

    @property
    def dispatcher(self) -> DispatcherGateway: ...

    @property
    def epoch(self) -> Epoch: ...

    def leader(self) -> LeaderInformation | None: ...


class WebMonitorEndpoint:
    """Serves the node's REST API. Callable as the entrypoint's `Endpoint`."""

    def __init__(
        self,
        configuration: Configuration,
        directory: Path,
        blobs: BlobStore,
        store: StateStore,
        *,
        woken: bool = False,
    ) -> None:
        """`woken`: the node was started by a command that needed one, and may be restarted by the next."""
        self._woken = woken
        self.last_asked = time.monotonic()
        """When the door was last knocked at."""
        self._configuration = configuration
        self._directory = directory
        self._blobs = blobs
        self._store = store

    @contextlib.asynccontextmanager
    async def __call__(self, node: LeaderView) -> AsyncIterator[str]:
        rest, security = self._configuration.rest, self._configuration.security
        check_door(rest, security)
        tls = await asyncio.to_thread(ssl_context, security) if security.ssl_enabled else None
        nodes = NodeIdentity(NodeKey(self._store))
        async with contextlib.AsyncExitStack() as opened:
            configured = Identities.of(security)
            opened.push_async_callback(configured.close)
            bearers = Bearers(nodes, Principal(_user(), Role.ADMIN, EVERYBODY), configured.tokens)
            identities = replace(configured, tokens=bearers)
            audit = AuditLog(security.audit_log or self._directory / "audit.log")
            audit.start()
            opened.push_async_callback(audit.aclose)
            client = await opened.enter_async_context(self._client())
            context = RestContext(
                configuration=self._configuration,
                leading=lambda: node.dispatcher,
                leader=node.leader,
                blobs=self._blobs,
                logs=JobLogs(self._directory / "jobs"),
                directory=self._directory,
            )
            app = create_app(context)
            await asyncio.to_thread(asyncio.run, warm(app))
            leadership = Leadership(lambda: node.epoch, node.leader)
            behind = Forwarding(TidyPaths(app), leadership, nodes, client)
            door = Door(
                self._noticing(behind),
                rest=rest,
                security=security,
                identities=identities,
                public=PUBLIC,
                limit_of=self._limit_of,
                audit=audit,
            )
            port = await opened.enter_async_context(
                serving(
                    door,
                    host=rest.bind_address,
                    port=rest.port,
                    context=tls,
                    protocol=protocol_with(rest.request_timeout),
                )
            )
            address = url(rest.address or rest.bind_address, port, tls=tls is not None)
            opened.push_async_callback(context.events.close)  # before the server, which waits for its streams
            context.address = address
            opened.callback(await asyncio.to_thread(self._announce, address, bearers.local_token))
            yield address

    def _noticing(self, app: ASGIApp) -> ASGIApp:
        async def noticed(scope: Scope, receive: Receive, send: Send) -> None:
            self.last_asked = time.monotonic()
            try:
                await app(scope, receive, send)
            finally:
                self.last_asked = time.monotonic()  # an event stream may have been open for long

        return noticed

    def _client(self) -> httpx.AsyncClient:
        """For asking the leader. Event streams are silent for long, so reading has no limit of its own."""
        security = self._configuration.security
        timeout = httpx.Timeout(self._configuration.rest.request_timeout, read=None, pool=None)
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=64)
        verify = str(security.ssl_ca) if security.ssl_ca else True
        return httpx.AsyncClient(timeout=timeout, limits=limits, verify=verify, trust_env=False)

    def _limit_of(self, path: str) -> int | None:
        """Uploads are larger than other bodies, and `multipart` adds a little to a file."""
        if path.removeprefix("/v1").rstrip("/") in ("/blobs", "/jars/upload"):
            return memory_bytes(self._configuration.blob.max_size) + 64 * 1024
        return None

    def _announce(self, address: str, token: str) -> Callable[[], None]:
        """Tell clients of this machine where we are. Gives what takes it back."""
        file = self._directory / LOCAL_FILE
        me = ProcessIdentity.of(os.getpid())
        assert me is not None
        anonymous = self._configuration.security.authentication == (Authentication.NONE,)
        mine = {
            "address": address,
            "token": None if anonymous else token,
            "pid": me.pid,
            "started": me.started,
            "woken": self._woken,
            "settings": fingerprint(self._configuration),
        }
        write_json(file, mine, durable=False)

        def take_back() -> None:
            with contextlib.suppress(OSError, ValueError):
                if (read_json(file) or {}).get("pid") == me.pid:  # another node of this machine may be there by now
                    file.unlink()

        return take_back


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container that runs under a user id without an account
        return f"uid-{os.getuid()}"
