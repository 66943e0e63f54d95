"""The WebMonitorEndpoint: the REST API of one node, from its configuration to its address."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import httpx
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from firesteel.blob.store import BlobStore
from firesteel.concurrency import OwnedTasks
from firesteel.config import Configuration
from firesteel.config.fingerprint import fingerprint
from firesteel.config.sections import Authentication, Role
from firesteel.config.values import memory_bytes
from firesteel.fleet.mirror import LogMirror
from firesteel.hosts import this_user
from firesteel.layout import ClusterLayout
from firesteel.metrics.registry import MetricRegistry
from firesteel.rest import dashboard
from firesteel.rest.announcement import Announcement
from firesteel.rest.app import Facade, TidyPaths, create_app, warm
from firesteel.rest.application_tokens import ApplicationTokens
from firesteel.rest.context import RestContext
from firesteel.rest.dashboard import Dashboard
from firesteel.rest.dashboard_files import BuiltDashboard
from firesteel.rest.flink_dashboard import FLINK, FlinkFiles
from firesteel.rest.flink_programs import RefusesFlinkPrograms
from firesteel.rest.forwarding import LOCAL_PATHS, Forwarding
from firesteel.rest.local_door import local_door
from firesteel.rest.logs import JobLogs
from firesteel.rest.measured import MeasuredRequests
from firesteel.rest.node_identity import Bearers, MachineBearers, NodeIdentity
from firesteel.rest.node_view import NodeView
from firesteel.rest.read_only import ReadOnly
from firesteel.rest.security.audit import AuditLog
from firesteel.rest.security.connections import Connections, room_for
from firesteel.rest.security.door import Door
from firesteel.rest.security.identities import Identities
from firesteel.rest.security.mtls import ssl_context
from firesteel.rest.security.principals import EVERYBODY, Principal
from firesteel.rest.security.protocol import protocol_with
from firesteel.rest.security.sessions import Sessions
from firesteel.rest.security.startup import check_door
from firesteel.rest.security.worker_credentials import KnownWorkers, WorkerCredentials
from firesteel.rest.server import serving, url
from firesteel.stores.secrets import NodeKeys
from firesteel.types import JobID

logger = logging.getLogger(__name__)

PUBLIC = ("/healthz",)


class WebMonitorEndpoint:
    """Serves the node's REST API. Callable as the entrypoint's `Endpoint`."""

    def __init__(
        self,
        configuration: Configuration,
        directory: Path,
        blobs: BlobStore,
        keys: NodeKeys,
        workers: KnownWorkers,
        *,
        facade: Facade,
        woken: bool = False,
        job_of_key: Callable[[str, str], Awaitable[JobID]],
        applications: ApplicationTokens | None = None,
        application: Callable[[], JobID | None] = lambda: None,
        metrics: MetricRegistry | None = None,
        read_only: str = "",
    ) -> None:
        """`woken`: the node was started by a command that needed one, and may be restarted by the next. `read_only`: why
        requests that would change something are refused; empty: they are not. `applications`: the tokens of programs.
        `application`: the one that the cluster lives for, if it is an application's."""
        self._read_only = read_only
        self._facade = facade
        self._woken = woken
        self._last_asked = time.monotonic()
        self._forwarding: Forwarding | None = None
        self._context: RestContext | None = None
        self._leaving = False
        self._open = 0
        """The number of requests in progress; an event stream may be open for days."""
        self._configuration = configuration
        self._directory = directory
        self._blobs = blobs
        self._keys = keys
        self._workers = workers
        self._job_of_key = job_of_key
        self._applications = applications
        self._application = application
        self._metrics = metrics or MetricRegistry()

    @contextlib.asynccontextmanager
    async def __call__(self, node: NodeView) -> AsyncIterator[str]:
        rest, security = self._configuration.rest, self._configuration.security
        check_door(rest, security)
        tls = await asyncio.to_thread(ssl_context, security) if security.ssl_enabled else None
        nodes = NodeIdentity(self._keys)
        async with contextlib.AsyncExitStack() as opened:
            configured = Identities.of(security)
            opened.push_async_callback(configured.close)
            bearers = Bearers(
                nodes, Principal(this_user(), Role.ADMIN, EVERYBODY), configured.tokens, self._applications
            )
            machines = MachineBearers(nodes, WorkerCredentials(self._workers))
            identities = replace(configured, tokens=bearers, workers=machines)
            audit = AuditLog(security.audit_log or self._directory / "audit.log")
            audit.start()
            opened.push_async_callback(audit.aclose)
            client = await opened.enter_async_context(await asyncio.to_thread(self.node_client))
            context = self._context = RestContext(
                configuration=self._configuration,
                node=node,
                blobs=self._blobs,
                logs=self._logs(node),
                directory=self._directory,
                job_of_key=self._job_of_key,
                application=self._application,
                metrics=self._metrics,
                read_only=bool(self._read_only),
            )
            opened.push_async_callback(context.close)
            app = create_app(context, self._facade)
            await asyncio.to_thread(asyncio.run, warm(app))
            forwarding = self._forwarding = Forwarding(
                TidyPaths(app),
                node,
                nodes,
                client,
                patience=rest.request_timeout,
                callers=configured.certificates,
            )
            directory, sessions = self._configuration.web.flink_dashboard_dir, Sessions()
            pages = Dashboard(
                ReadOnly(forwarding, self._read_only) if self._read_only else RefusesFlinkPrograms(forwarding),
                await asyncio.to_thread(BuiltDashboard.of),
                sessions,
                address=lambda: context.address,
                flink=None if directory is None else await asyncio.to_thread(FlinkFiles.of, directory),
            )
            door = Door(
                self._noticing(pages),
                rest=rest,
                security=security,
                identities=identities,
                public=(*PUBLIC, *dashboard.PUBLIC),
                limit_of=self._limit_of,
                audit=audit,
                sessions=sessions,
            )
            most = room_for(rest.max_connections)
            connections = Connections(most, min(rest.max_connections_per_address, max(1, most * 3 // 4)))
            port = await opened.enter_async_context(
                serving(
                    MeasuredRequests(door, self._metrics),
                    host=rest.bind_address,
                    port=rest.port,
                    context=tls,
                    protocol=protocol_with(rest.request_timeout, connections),
                    connections=connections,
                )
            )
            address = url(rest.address or rest.bind_address, port, tls=tls is not None)
            opened.push_async_callback(context.events.close)  # before the server, which waits for its streams
            context.address = forwarding.address = address
            anonymous = security.authentication == (Authentication.NONE,)
            handed_out = None if anonymous else opened.enter_context(local_door(bearers.local_token))
            announcement = context.announcement = self._announcement(address, handed_out)
            await asyncio.to_thread(announcement.write)
            opened.push_async_callback(asyncio.to_thread, announcement.take_back)
            tasks = OwnedTasks("rest", lambda error: logger.error("cannot announce this node: %s", error))
            opened.push_async_callback(tasks.close)
            tasks.start(announcement.keep(), "announcement")
            yield address

    def _logs(self, node: NodeView) -> JobLogs:
        layout = ClusterLayout(self._directory)
        mirror = LogMirror(layout.mirror, lambda: node.dispatcher.sessions)
        return JobLogs(layout.jobs, layout.mirror, mirror.copy)

    # -- leaving without disturbing clients -----------------------------------------------------------------------

    async def finish(self) -> None:
        """Wait until accepted requests are answered, and end event streams so that their clients go to the next leader."""
        if self._context is not None:
            self._context.events.interrupt()
        if self._forwarding is not None:
            await self._forwarding.finish()

    async def neighbours(self) -> bool:
        """Whether other nodes of this cluster run on this machine."""
        announced = None if self._context is None else self._context.announcement
        return announced is not None and bool(await asyncio.to_thread(announced.others))

    def leave(self, *, others: bool) -> None:
        """Prepare for the end: this node serves for a moment longer, and each connection ends with its next answer."""
        self._leaving = True
        self.withdraw()
        if self._forwarding is not None and not others:
            self._forwarding.give_up()

    def withdraw(self) -> None:
        """Remove the announcement, as the node is about to end."""
        if self._context is not None:
            self._context.withdraw()

    @property
    def last_asked(self) -> float:
        """The time of the last request; now, if one is in progress."""
        return time.monotonic() if self._open else self._last_asked

    def _noticing(self, app: ASGIApp) -> ASGIApp:
        async def noticed(scope: Scope, receive: Receive, send: Send) -> None:
            if scope.get("path", "").removeprefix("/v1") in LOCAL_PATHS:  # a probe does not count as use
                await app(scope, receive, send)
                return
            self._open += 1

            async def parting(message: Message) -> None:
                if self._leaving and message["type"] == "http.response.start":
                    message = {**message, "headers": [*message.get("headers", []), (b"connection", b"close")]}
                await send(message)

            try:
                await app(scope, receive, parting)
            finally:
                self._open -= 1
                self._last_asked = time.monotonic()

        return noticed

    @property
    def address(self) -> str:
        """Where this node serves; empty before it does."""
        return "" if self._context is None else self._context.address

    def node_client(self) -> httpx.AsyncClient:
        """The client for requests to the leader. Event streams may be silent for long, so reads have no timeout."""
        security = self._configuration.security
        timeout = httpx.Timeout(self._configuration.rest.request_timeout, read=None, pool=None)
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=64)
        trusted: ssl.SSLContext | bool = True
        if security.ssl_enabled:
            trusted = ssl.create_default_context(cafile=security.ssl_ca)
            assert security.ssl_certificate is not None
            # A leader that requires client certificates requires ours too.
            trusted.load_cert_chain(security.ssl_certificate, security.ssl_key)
        return httpx.AsyncClient(timeout=timeout, limits=limits, verify=trusted, trust_env=False)

    def _limit_of(self, path: str) -> int | None:
        """The size limit of a body: uploads may be larger than others, and `multipart` adds a little to a file."""
        if path.removeprefix(FLINK).removeprefix("/v1").rstrip("/") in ("/blobs", "/jars/upload"):
            return memory_bytes(self._configuration.blob.max_size) + 64 * 1024
        return None

    def _announcement(self, address: str, handed_out: str | None) -> Announcement:
        content = {
            "address": address,
            "socket": handed_out,
            "woken": self._woken,
            "settings": fingerprint(self._configuration),
        }
        return Announcement(self._directory, content)
