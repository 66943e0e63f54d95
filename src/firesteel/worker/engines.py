"""Engines as processes of this host.

An engine outlives the control plane. So no engine is ended because a task was cancelled: the next leader finds one
that was being started or stopped through the engine's directory, which holds all that it needs to know.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from firesteel.concurrency import surely
from firesteel.config import Configuration
from firesteel.config.sections import Isolation
from firesteel.engines import launcher
from firesteel.engines.java import find_java
from firesteel.engines.launcher import LaunchOptions
from firesteel.engines.record import EngineDirectory, EngineRecord, EngineSpec
from firesteel.errors import EngineLostError, EngineStartError, FencingError
from firesteel.fs.files import tail
from firesteel.hosts import Whereabouts, this_host, this_user
from firesteel.layout import ClusterLayout
from firesteel.processes import ProcessIdentity
from firesteel.resourcemanager.provider import EngineHealth
from firesteel.types import Guard
from firesteel.worker.launch_options import launch_options

T = TypeVar("T")
logger = logging.getLogger(__name__)

STOPPING = "stopping"
"""File in an engine's directory: it was told to end. A leader that finds it ends the engine and grants no slot on
it."""

THREADS = 32
WORKING_SECONDS = 0.05
"""Processor time between two checks that shows that an engine works; the threads of an idle one use less."""
PID_SECONDS = 30.0
"""How long a process that was just started may take to note its pid."""


class _AbandonedError(Exception):
    """The call that waited for an engine was cancelled; its thread stops waiting and leaves the engine as it is."""


class LocalEngineProvider:
    """Engines as processes of this machine, each noted in `directory` before it starts."""

    def __init__(
        self,
        directory: EngineDirectory,
        options: LaunchOptions,
        *,
        shared: EngineDirectory | None = None,
        shared_owner: str | None = None,
        token: str = "",
        patience: float = 30.0,
        whereabouts: Whereabouts | None = None,
        worker: str = "",
    ) -> None:
        """
        Args:
            directory: The engines of this cluster and no other: all that are found there are ours.
            options: How to start them.
            shared: Where `firesteel engine start` records its engines; None not to use these (`engine.reuse`).
            shared_owner: The owner whose jobs may use these; None for all owners.
            token: For attached endpoints (`engine.token`).
            patience: How long an adopted engine may be silent (`heartbeat.timeout`).
            whereabouts: Tells engines of this host from those of others.
            worker: The id of the worker of this host, which has all engines that are found here.
        """
        self._worker = worker
        self._whereabouts = whereabouts or Whereabouts(this_host())
        self._directory = directory
        self._options = options
        self._shared = shared
        self._shared_owner = shared_owner
        self._token = token
        self._patience = patience
        self._used: dict[str, float] = {}
        """Processor time of engines at the last look to which they did not answer."""
        # Separate, so that engines which hang, each with a thread that waits for its answer, do not keep new ones from
        # starting.
        self._work = ThreadPoolExecutor(THREADS, thread_name_prefix="engines")
        self._checks = ThreadPoolExecutor(THREADS, thread_name_prefix="engine-health")

    async def start(self, spec: EngineSpec, worker: str = "") -> EngineRecord:
        if spec.attached:
            return await self._attach(spec)
        abandoned = threading.Event()
        launching = asyncio.get_running_loop().run_in_executor(self._work, self._launch, spec, abandoned)
        try:
            record = await asyncio.shield(launching)
            await self._in(self._work, lambda: self._wait_until_ready(record, abandoned))
        except asyncio.CancelledError:
            abandoned.set()
            # A process that is just being started is waited for: none appears after the call has ended.
            await surely(launching)
            launching.exception()
            raise
        return self._here(record)

    def _here(self, record: EngineRecord) -> EngineRecord:
        return dataclasses.replace(record, worker=self._worker)

    def _launch(self, spec: EngineSpec, abandoned: threading.Event) -> EngineRecord:
        if abandoned.is_set():
            raise EngineStartError("the start of an engine was cancelled before it began")
        find_java(self._options.java_home)  # says what is missing before anything is written down
        return launcher.start_engine(self._directory, spec, self._options, wait=False)

    def _wait_until_ready(self, record: EngineRecord, abandoned: threading.Event) -> None:
        def given_up() -> bool:
            if abandoned.is_set():
                raise _AbandonedError
            return False

        try:
            launcher.wait_until_ready(self._directory, record, self._options, cancelled=given_up)
        except _AbandonedError:
            logger.info("engine %s is left to come up by itself", record.engine_id)

    async def _attach(self, spec: EngineSpec) -> EngineRecord:
        record = self._here(dataclasses.replace(launcher.attach(spec.master, self._token), spec=spec))
        if await self.health(record) is not EngineHealth.WELL:
            raise EngineStartError(
                f"nothing answers at {spec.master}; start the Spark Connect server there, or change engine.master"
            )
        return record

    async def adopt(self, record: EngineRecord) -> EngineRecord:
        # One that was being started when its starter died has the rest of its time to come up.
        began = time.time()
        deadline = max(began + self._patience, record.started_at + self._options.start_timeout)
        while True:
            found = record if record.shared else await self._in(self._checks, lambda: self._reloaded(record))
            match health := await self.health(found):
                case EngineHealth.WELL:
                    return self._here(found)
                case EngineHealth.GONE:
                    raise EngineLostError(f"engine {record.engine_id} ({record.spec.master}) is gone")
                case EngineHealth.BUSY if time.time() < began + self._options.start_timeout:
                    pass
                case _ if time.time() > deadline:
                    logger.info("engine %s %s", record.engine_id, health.value)
                    raise EngineLostError(f"engine {record.engine_id} ({record.spec.master}) does not answer")
            await asyncio.sleep(0.1)

    async def there(self, record: EngineRecord) -> bool:
        return await self._in(self._checks, lambda: self._is_there(record))

    def _is_there(self, record: EngineRecord) -> bool:
        told_to_end = (self._directory.home(record.engine_id) / STOPPING).exists()
        return not told_to_end and record.process is not None and record.process.alive

    async def stop(self, record: EngineRecord, *, guard: Guard, force: bool = False) -> None:
        assert not record.shared
        assert not record.spec.attached
        abandoned = threading.Event()
        try:
            await self._in(self._work, lambda: self._end(record, abandoned, guard, force=force))
        except asyncio.CancelledError:
            abandoned.set()
            raise

    def _end(self, record: EngineRecord, abandoned: threading.Event, guard: Guard, *, force: bool) -> None:
        if abandoned.is_set():
            return
        record = self._reloaded(record)
        home = self._directory.home(record.engine_id)
        there = False
        if home.is_dir():
            # An engine takes seconds to end, and answers meanwhile. A new leader must not take it for a healthy one.
            there = (home / STOPPING).exists()
            (home / STOPPING).touch(mode=0o600)
        try:
            guard()
        except FencingError:
            if not there:
                (home / STOPPING).unlink(missing_ok=True)
            raise
        launcher.stop_engine(self._directory, record, grace=0 if force else self._options.stop_timeout)
        self._used.pop(record.engine_id, None)

    async def health(self, record: EngineRecord) -> EngineHealth:
        return await self._in(self._checks, lambda: self._health(record))

    def _health(self, record: EngineRecord) -> EngineHealth:
        if record.spec.attached:
            return EngineHealth.WELL if launcher.healthy(record) else EngineHealth.SILENT
        if not record.shared and (self._directory.home(record.engine_id) / STOPPING).exists():
            return EngineHealth.GONE
        if record.process is None:
            return EngineHealth.SILENT if time.time() - record.started_at < PID_SECONDS else EngineHealth.GONE
        if not record.process.alive:
            return EngineHealth.GONE
        used = record.process.cpu_seconds()
        if launcher.healthy(record):
            self._used.pop(record.engine_id, None)
            return EngineHealth.WELL
        return EngineHealth.BUSY if self._works(record.engine_id, record.process, used) else EngineHealth.SILENT

    def _works(self, engine_id: str, process: ProcessIdentity, used: float | None) -> bool:
        """Whether the process has used the processor since the last check that it did not answer, or else since this
        check began, when it had `used` that much."""
        now = process.cpu_seconds()
        if used is None or now is None:
            return False
        before = self._used.get(engine_id, used)
        self._used[engine_id] = now
        return now - before >= WORKING_SECONDS

    async def last_words(self, record: EngineRecord) -> str:
        directory = self._shared if record.shared else self._directory
        if directory is None or record.spec.attached:
            return ""
        log = directory.log(record.engine_id)
        return await self._in(self._checks, lambda: tail(log, lines=20))

    async def existing(self) -> Sequence[EngineRecord]:
        def find() -> list[EngineRecord]:
            return [self._here(r) for r in self._directory.all() if not r.shared and not self._is_elsewhere(r)]

        return await self._in(self._work, find)

    def _is_elsewhere(self, record: EngineRecord) -> bool:
        """Whether an engine runs on another host that shares these files: a leader on that host is responsible for
        it."""
        return self._whereabouts.elsewhere(self._directory.host(record.engine_id), seen=is_seen(record)) is not None

    async def shared(self) -> Sequence[EngineRecord]:
        directory = self._shared
        if directory is None:
            return []
        found = await self._in(self._work, lambda: [r for r in directory.alive() if r.shared])
        return [
            self._here(dataclasses.replace(r, spec=dataclasses.replace(r.spec, owner=self._shared_owner)))
            for r in found
        ]

    async def close(self) -> None:
        """Release the threads. Engines keep running, and a call that is under way in a thread continues."""
        self._work.shutdown(wait=False)
        self._checks.shutdown(wait=False)

    def _reloaded(self, record: EngineRecord) -> EngineRecord:
        """The record with the pid that the process itself wrote meanwhile."""
        return self._directory.load(record.engine_id) or record

    async def _in(self, pool: ThreadPoolExecutor, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(pool, call)


def is_seen(record: EngineRecord) -> bool:
    """Whether the process of an engine can be seen from here. One in another container holds no lock that would show
    it."""
    return record.process is not None and record.process.alive


def engine_provider(configuration: Configuration, worker: str) -> LocalEngineProvider:
    """The provider of this host's engines, as configured."""
    return LocalEngineProvider(
        EngineDirectory(ClusterLayout.of(configuration).home),
        launch_options(configuration),
        shared=EngineDirectory(configuration.data.dir) if configuration.engine.reuse else None,
        shared_owner=None if configuration.engine.isolation is Isolation.SESSION else this_user(),
        token=configuration.engine.token or "",
        patience=configuration.heartbeat.timeout,
        whereabouts=Whereabouts(this_host()),
        worker=worker,
    )
