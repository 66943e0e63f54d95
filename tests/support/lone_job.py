"""One job without a control plane, looked after from its graph to its end by the test itself.

The order of writes is what makes a crash harmless: the job before its first attempt, the attempt's spec (engine, ids) before
the driver, the driver's own result before ours, and the sinks' leftovers are cleared only once our result is written.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import shutil
import signal
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from pathlib import Path
from typing import Any

from firesteel.attempts.attempt import AttemptDirectory, AttemptResult, AttemptSpec, AttemptState, EventTail, LineTail
from firesteel.cli.engine_for import acquire, dispose
from firesteel.config import Configuration
from firesteel.driver.failure import classify
from firesteel.engines.launcher import healthy
from firesteel.engines.record import EngineRecord
from firesteel.errors import FiresteelError, InvalidPipelineError
from firesteel.failure import Failure, FailureKind
from firesteel.fs.files import tail
from firesteel.jobgraph.model import JobGraph
from firesteel.jobmaster.plan import RunPlan
from firesteel.jobmaster.restart import RestartHistory, restart_delay
from firesteel.processes import ProcessIdentity
from firesteel.sinks.graph import clear
from firesteel.status import JobStatus
from firesteel.types import AttemptId
from firesteel.worker.endings import from_exit
from firesteel.worker.gateway import Gateway, start_gateway
from firesteel.worker.launch_options import launch_options
from firesteel.worker.pool import DriverPool, DriverProcess
from tests.support.job_directory import JobDirectory, JobRecord
from tests.support.warm_gateways import WarmGateways

Listener = Callable[[dict[str, Any]], None]
POLL_SECONDS = 0.05
logger = logging.getLogger(__name__)


class LoneJob:
    """Runs one job. `run` blocks; `cancel` and `kill` may be called from a signal handler."""

    def __init__(
        self,
        directory: JobDirectory,
        graph: JobGraph,
        configuration: Configuration,
        *,
        cwd: Path,
        listener: Listener,
        pool: DriverPool | None = None,
        gateways: WarmGateways | None = None,
    ) -> None:
        """`pool` and `gateways` are lent by whoever runs several jobs; a job on its own makes what it needs."""
        self._directory = directory
        self._graph = graph
        self._configuration = configuration
        self._cwd = cwd
        self._listener: Listener | None = listener
        self._pool = pool
        self._gateways = gateways
        self._plan = RunPlan.of(graph, configuration)
        self._record = dataclasses.replace(directory.load(), supervisor=ProcessIdentity.of(os.getpid()))
        self._cancel_at: float | None = None
        self._kill = False

    # -- from outside ---------------------------------------------------------------------------------------------

    def cancel(self) -> None:
        if self._cancel_at is None:
            self._cancel_at = time.monotonic()

    def kill(self) -> None:
        self.cancel()
        self._kill = True

    # -- the life of the job ---------------------------------------------------------------------------------------

    def run(self) -> JobRecord:
        self._save(status=JobStatus.RUNNING)
        engine: EngineRecord | None = None
        starter = ThreadPoolExecutor(1, thread_name_prefix="engine-start")
        pool = self._pool or DriverPool(python=self._plan.python, log=self._directory.root / "drivers.log")
        try:
            # Spark's start and PySpark's import take seconds each; they overlap.
            starting = starter.submit(self._acquire) if not self._plan.classic else None
            history = RestartHistory()
            number = 0
            while True:
                number += 1
                try:
                    if starting is not None:
                        engine = self._await(starting)
                    result = self._attempt(number, engine, pool)
                except InvalidPipelineError as error:
                    result = AttemptResult(AttemptState.FAILED, classify(error), time.time())
                except FiresteelError as error:
                    failure = Failure(FailureKind.ENGINE_START, str(error))
                    result = AttemptResult(AttemptState.FAILED, failure, time.time())
                if self._cancel_at is not None and result.state is AttemptState.FAILED:
                    result = AttemptResult(AttemptState.CANCELED, ended_at=time.time())
                if result.state is not AttemptState.FAILED:
                    return self._end(result)
                assert result.failure is not None
                history = history.failed(time.time())
                delay = restart_delay(self._graph.settings.restart, history, result.failure)
                if delay is None:
                    return self._end(result)
                self._save(status=JobStatus.RESTARTING, restarts=number, failure=result.failure)
                self._tell({"type": "restart", "delay": delay, "failure": str(result.failure), "attempt": number + 1})
                self._sleep(delay)
                if engine is not None and not healthy(engine):
                    dispose(engine, self._configuration)
                    engine = None
                if engine is None and starting is not None:
                    starting = starter.submit(self._acquire)
                self._save(status=JobStatus.RUNNING)
        finally:
            if self._pool is None:
                pool.close()
            if engine is not None:
                dispose(engine, self._configuration)
            starter.shutdown(wait=True, cancel_futures=True)

    def _acquire(self) -> EngineRecord:
        return acquire(self._plan, self._configuration, cancelled=lambda: self._cancel_at is not None)

    def _await(self, starting: Future[EngineRecord]) -> EngineRecord:
        try:
            # One that is there is found in no time.
            engine = starting.result(timeout=0.2)
        except FutureTimeout:
            self._tell({"type": "phase", "phase": "starting-engine"})
            engine = starting.result()
        self._save(engine_id=engine.engine_id)
        self._tell({"type": "engine", "id": engine.engine_id, "address": engine.address, "master": engine.spec.master})
        return engine

    def _attempt(self, number: int, engine: EngineRecord | None, pool: DriverPool) -> AttemptResult:
        if self._cancel_at is not None:
            return AttemptResult(AttemptState.CANCELED, ended_at=time.time())
        directory = self._directory.attempt(number)
        gateway = self._gateway(directory.root / "jvm") if self._plan.classic else None
        spec = AttemptSpec(
            attempt=AttemptId(self._directory.job_id, number),
            graph=self._graph,
            engine=engine,
            gateway=str(gateway.home) if gateway else None,
            checkpoints=f"{self._configuration.state.checkpoints_dir.rstrip('/')}/{self._directory.job_id}",
            default_parallelism=self._configuration.parallelism.default,
            spark=self._configuration.spark,
        )
        try:
            directory.prepare(spec)
            driver = pool.spawn(
                "attempt",
                {"directory": str(directory.root)},
                stdout=directory.stdout,
                stderr=directory.stderr,
                cwd=self._cwd,
                env=self._plan.driver_environment,
                timeout=self._configuration.driver.start_timeout,
            )
            self._save(attempt=number, driver=driver.process)
            return self._follow(driver, directory, pool, gateway)
        finally:
            if gateway is not None:
                gateway.stop()
                shutil.rmtree(gateway.home, ignore_errors=True)

    def _gateway(self, home: Path) -> Gateway:
        warm = self._gateways.take(self._plan.engine) if self._gateways else None
        if warm is not None:
            return warm
        return start_gateway(
            home, self._plan.engine, launch_options(self._configuration), app_name=self._graph.name, cwd=self._cwd
        )

    def _follow(
        self, driver: DriverProcess, directory: AttemptDirectory, pool: DriverPool, gateway: Gateway | None
    ) -> AttemptResult:
        """Pass the driver's events on until it ends, and see to it that a cancel is obeyed."""
        events = EventTail(directory.events)
        output = LineTail(directory.stdout)
        asked = False
        while True:
            for event in events.new():
                if gateway is not None and event["type"] == "phase":
                    gateway.hand_over()
                self._tell(event)
            self._pass_on(output)
            try:
                ended = driver.exited.result(timeout=POLL_SECONDS)
                break
            except FutureTimeout:
                pass
            if self._cancel_at is None:
                continue
            if not asked:
                asked = True
                self._save(status=JobStatus.CANCELLING)
                self._tell({"type": "phase", "phase": "cancelling"})
                driver.process.signal(signal.SIGTERM)
            overdue = time.monotonic() - self._cancel_at > self._configuration.driver.cancel_timeout
            if overdue or self._kill:
                driver.process.signal(signal.SIGKILL, group=True)
        self._pass_on(output)
        for event in events.new():
            self._tell(event)
        result = directory.read_result()
        if result is None:
            # The driver could not end its own work on the engine.
            self._release(directory, pool)
            state = AttemptState.FAILED if self._cancel_at is None else AttemptState.CANCELED
            failure = from_exit(ended.status, tail(directory.stderr)) if self._cancel_at is None else None
            result = AttemptResult(state, failure, time.time())
            directory.write_result(result)
        return result

    def _pass_on(self, output: LineTail) -> None:
        """What a program prints is for the one who watches it, as it comes."""
        if self._graph.script is not None and (text := output.new()):
            self._tell({"type": "output", "text": text})

    def _release(self, directory: AttemptDirectory, pool: DriverPool) -> None:
        if directory.read_spec().engine is None:
            return
        with contextlib.suppress(FiresteelError, FutureTimeout):
            log = directory.root / "release.log"
            helper = pool.spawn("release", {"directory": str(directory.root)}, stdout=log, stderr=log, cwd=self._cwd)
            helper.exited.result(timeout=10)

    def _end(self, result: AttemptResult) -> JobRecord:
        record = self._save(
            status=JobStatus(result.state.value), ended_at=result.ended_at, failure=result.failure, driver=None
        )
        self._clear_sinks(result)
        self._tell({"type": "job", "status": record.status.value})
        return record

    def _clear_sinks(self, result: AttemptResult) -> None:
        """Remove staging and commit records. The result is written, so nobody will ask for them again."""
        finished = result.state is AttemptState.FINISHED
        for sink, error in clear(self._graph, self._directory.job_id, finished=finished):
            self._tell({"type": "note", "text": f"sink '{sink}': clean-up left files: {classify(error)}"})

    # -- small things -----------------------------------------------------------------------------------------------

    def _tell(self, event: dict[str, Any]) -> None:
        """Whoever listens may break (a closed pipe, a bug in a display); the job goes on without being shown."""
        if self._listener is not None:
            try:
                self._listener(event)
            except Exception:
                self._listener = None
                logger.exception("the listener of job %s failed and is told nothing more", self._directory.job_id)

    def _sleep(self, delay: float) -> None:
        until = time.monotonic() + delay
        while time.monotonic() < until and self._cancel_at is None:
            time.sleep(min(POLL_SECONDS, max(0.0, until - time.monotonic())))

    def _save(self, **changes: Any) -> JobRecord:
        self._record = dataclasses.replace(self._record, **changes)
        self._directory.save(self._record)
        return self._record
