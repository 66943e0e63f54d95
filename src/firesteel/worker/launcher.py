"""Starts an attempt: writes its intent, then forks a driver that takes it."""

from __future__ import annotations

import uuid
from pathlib import Path

from firesteel.attempts.attempt import AttemptDirectory, AttemptSpec
from firesteel.attempts.bell import bells
from firesteel.attempts.lifecycle import write_intent
from firesteel.config import Configuration
from firesteel.engines.record import EngineRecord
from firesteel.errors import FiresteelError
from firesteel.fs.files import private_dir
from firesteel.hosts import Host
from firesteel.jobgraph.model import JobGraph, Mode, ScriptApi, runs_user_code
from firesteel.jobmaster.executor import Deployment
from firesteel.jobmaster.plan import RunPlan
from firesteel.sandbox.owners import job_directory
from firesteel.sandbox.policy import SandboxPolicy
from firesteel.sandbox.rules import Sandbox
from firesteel.types import AttemptId
from firesteel.worker import engine_log
from firesteel.worker.gateway import Gateway, start_gateway, writable
from firesteel.worker.launch_options import launch_options
from firesteel.worker.processes import AttemptProcesses
from firesteel.worker.sandboxing import sandbox_policy


class AttemptLauncher:
    """Launches attempts. `here` goes into each intent, so that a leader on another host does not take the driver for
    dead."""

    def __init__(self, configuration: Configuration, processes: AttemptProcesses, here: Host) -> None:
        self._configuration = configuration
        self._processes = processes
        self._here = here

    def launch(self, deployment: Deployment) -> None:
        """Start an attempt. Nothing happens when its driver runs, or the attempt was called off or is over."""
        processes, attempt = self._processes, deployment.attempt
        directory = processes.directory(attempt)
        child = processes.drivers.get(attempt)
        if child is not None and not child.exited.done() and child.process.alive:
            return
        wished = deployment.graph.settings.directory
        gateway: Gateway | None = None
        try:
            reusable = self._is_reusable(deployment)
            cwd = Path(wished) if wished and Path(wished).is_dir() else private_dir(self._work(attempt))
            spec = self._spec(deployment, directory)
            sandbox = self._sandbox(deployment, directory, spec, reusable=reusable)
            if not write_intent(directory, spec):
                return
            engine_log.begin(spec.engine, self._engines(spec.engine), directory)
            if spec.gateway is not None:
                gateway = self._start_gateway(Path(spec.gateway), deployment.graph, cwd, sandbox)
                processes.gateways[attempt] = gateway
            processes.drivers[attempt] = processes.pool().spawn(
                "attempt",
                {"directory": str(directory.root)},
                stdout=directory.stdout,
                stderr=directory.stderr,
                cwd=cwd,
                env={"PYSPARK_PYTHON": processes.python, "PYTHONUNBUFFERED": "1", **self._temporary(deployment)},
                reusable=reusable,
                sandbox=sandbox,
                timeout=self._configuration.driver.start_timeout,
            )
        except (OSError, FiresteelError) as error:
            if gateway is not None:
                processes.drop_gateway(attempt, grace=0)
            if isinstance(error, FiresteelError):
                raise
            raise FiresteelError(
                f"attempt {attempt} cannot be started in {directory.root}: {error} — check that the directory is "
                "writable and has free space"
            ) from error

    def _engines(self, engine: EngineRecord | None) -> Path:
        mine = engine is None or not engine.shared
        return (self._processes.root.parent if mine else self._configuration.data.dir) / "engines"

    def _spec(self, deployment: Deployment, directory: AttemptDirectory) -> AttemptSpec:
        job_id = deployment.attempt.job_id
        # A name of its own for each start: a leader that was paused while it started a JVM shall not get in our way.
        script = deployment.graph.script
        without = deployment.engine is not None or (script is not None and script.api is ScriptApi.NONE)
        jvm = None if without else str(directory.root / f"jvm-{uuid.uuid4().hex[:8]}")
        return AttemptSpec(
            attempt=deployment.attempt,
            graph=deployment.graph,
            engine=deployment.engine,
            gateway=jvm,
            checkpoints=job_directory(self._configuration.state.checkpoints_dir, deployment.owner, job_id),
            default_parallelism=self._configuration.parallelism.default,
            spark=self._configuration.spark,
            host=str(self._here),
            restricted=deployment.restricted,
            owner=deployment.owner,
            environment=deployment.environment,
            given_up=deployment.given_up,
        )

    @property
    def _policy(self) -> SandboxPolicy | None:
        return sandbox_policy(self._configuration)

    def _sandbox(
        self, deployment: Deployment, directory: AttemptDirectory, spec: AttemptSpec, *, reusable: bool
    ) -> Sandbox | None:
        """A driver that runs no code of users is confined where it opens what a caller names, and reaches all else. Another
        reads the directory of its attempt, and writes what is its own there (S44)."""
        policy, owner = self._policy, deployment.owner
        if policy is None:
            return None
        if reusable:
            return policy.task(owner)
        job = self._processes.root / deployment.attempt.job_id
        temporary = [Path(place) for place in self._temporary(deployment).values()]
        jvm = writable(Path(spec.gateway)) if spec.gateway is not None else ()
        return policy.driver(
            owner,
            shown=(directory.root, bells(self._processes.root)),
            files=job / "artifacts",
            own=(private_dir(directory.output), private_dir(self._work(deployment.attempt)), *temporary, *jvm),
        )

    def _is_reusable(self, deployment: Deployment) -> bool:
        """Whether its driver may run jobs of other owners later: not after user code, and not as a user of its own."""
        graph, policy = deployment.graph, self._policy
        user = policy.os_user(deployment.owner) if policy is not None else None
        return user is None and graph.mode is Mode.BATCH and not runs_user_code(graph)

    def _work(self, attempt: AttemptId) -> Path:
        """The working directory of a job that names none."""
        return self._processes.root / attempt.job_id / "work"

    def _temporary(self, deployment: Deployment) -> dict[str, str]:
        if self._policy is None or not self._policy.private_temporary(deployment.owner):
            return {}
        return {"TMPDIR": str(private_dir(self._work(deployment.attempt) / "tmp"))}

    def _start_gateway(self, home: Path, graph: JobGraph, cwd: Path, sandbox: Sandbox | None) -> Gateway:
        assert graph.script is not None
        classic = graph.script.model_copy(update={"api": ScriptApi.CLASSIC})
        plan = RunPlan.of(graph.with_(vertices=(classic,)), self._configuration)
        return start_gateway(
            home, plan.engine, launch_options(self._configuration), app_name=graph.name, cwd=cwd, sandbox=sandbox
        )
