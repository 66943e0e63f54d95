"""One node, part by part: opened in order, closed in reverse, and an error that says which part it was."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from firesteel.config import Configuration, load_configuration
from firesteel.dispatcher.runner import DispatcherRunner
from firesteel.engines.record import EngineRecord
from firesteel.entrypoint import cluster_entrypoint, wiring
from firesteel.entrypoint.application_status import ApplicationStatus
from firesteel.entrypoint.cluster_entrypoint import ClusterEntrypoint
from firesteel.entrypoint.component import DispatcherResourceManagerComponent, Endpoint
from firesteel.errors import (
    EnvironmentNotReadyError,
    FiresteelError,
    NotLeadingError,
    ServiceStartError,
    StoreBrokenError,
)
from firesteel.ha.memory import MemoryHighAvailabilityServices
from firesteel.ha.retrieval import LeaderRetrieval

ORDER = [
    "high-availability services",
    "driver pool",
    "executor",
    "engine provider",
    "leader retrieval service",
    "REST endpoint",
    "dispatcher runner",
]
"""As they are opened. The executor is part of the driver pool to those who read messages."""


class Parts:
    """Stands in for what a node opens; `failing` names the part that cannot."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.failing = ""
        self.error: Exception = OSError(98, "Address already in use")
        self.close_error: Exception | None = None
        self.provider_error: Exception | None = None
        self.pool_options: dict[str, Any] = {}

    def open(self, part: str) -> None:
        if part == self.failing:
            raise self.error
        self.log.append(f"open {part}")

    def close(self, part: str) -> None:
        self.log.append(f"close {part}")

    @property
    def opened(self) -> list[str]:
        return [w.removeprefix("open ") for w in self.log if w.startswith("open ")]

    @property
    def closed(self) -> list[str]:
        return [w.removeprefix("close ") for w in self.log if w.startswith("close ")]

    def install(self, patch: pytest.MonkeyPatch) -> None:
        parts = self

        class Ha(MemoryHighAvailabilityServices):
            async def close(self) -> None:
                parts.close("high-availability services")
                if parts.close_error:
                    raise parts.close_error
                await super().close()

        async def open_ha(_: Configuration) -> Ha:
            parts.open("high-availability services")
            return Ha()

        class Pool:
            def __init__(self, **options: Any) -> None:
                parts.pool_options = options
                parts.open("driver pool")

            def close(self) -> None:
                parts.close("driver pool")

        class Executor:
            errands = None

            def __init__(self, *_: Any) -> None:
                parts.open("executor")

            async def open(self) -> None: ...

            async def close(self) -> None:
                parts.close("executor")

        class Engines:
            async def existing(self) -> Sequence[EngineRecord]:
                if parts.provider_error:
                    raise parts.provider_error
                return ()

            async def shared(self) -> Sequence[EngineRecord]:
                return ()

            async def close(self) -> None:
                parts.close("engine provider")

        def engine_provider(_: Configuration, _worker: str) -> Engines:
            parts.open("engine provider")
            return Engines()

        class Retrieval(LeaderRetrieval):
            async def start(self) -> None:
                parts.open("leader retrieval service")
                await super().start()

            async def close(self) -> None:
                parts.close("leader retrieval service")
                await super().close()

        class Runner(DispatcherRunner):
            async def start(self) -> None:
                parts.open("dispatcher runner")
                await super().start()

            async def close(
                self,
                finish: Callable[[], Awaitable[None]] | None = None,
                *,
                alone: Callable[[], Awaitable[bool]] | None = None,
            ) -> None:
                parts.close("dispatcher runner")
                await super().close(finish, alone=alone)

        patch.setattr(cluster_entrypoint, "open_high_availability", open_ha)
        patch.setattr(cluster_entrypoint, "DriverPool", Pool)
        patch.setattr(cluster_entrypoint, "LocalAttemptExecutor", Executor)
        patch.setattr(cluster_entrypoint, "engine_provider", engine_provider)
        patch.setattr(cluster_entrypoint, "LeaderRetrieval", Retrieval)
        patch.setattr(wiring, "DispatcherRunner", Runner)

    def endpoint(self, serve: Callable[[], Coroutine[Any, Any, None]] | None = None) -> Endpoint:
        @contextlib.asynccontextmanager
        async def door(component: DispatcherResourceManagerComponent) -> AsyncIterator[str]:
            self.open("REST endpoint")
            task = asyncio.ensure_future(serve()) if serve is not None else None
            try:
                yield "http://localhost:8081"
            finally:
                self.close("REST endpoint")
                if task is not None:
                    await task

        return door


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> Parts:
    made = Parts()
    made.install(monkeypatch)
    return made


@pytest.fixture
def signals() -> Iterator[None]:
    """What `run` does to this process's signals is undone."""
    before = {n: signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def configured(tmp_path: Path, **options: str) -> Configuration:
    given = {k.replace("__", ".").replace("_", "-"): v for k, v in options.items()}
    environ = {"HOME": str(tmp_path)}
    return load_configuration(overrides={"data.dir": str(tmp_path / "data")} | given, environ=environ, cwd=tmp_path)


async def leads(component: DispatcherResourceManagerComponent) -> None:
    async with asyncio.timeout(10):
        while True:
            with contextlib.suppress(NotLeadingError):
                assert component.dispatcher is not None
                return
            await asyncio.sleep(0.01)


# -- order ------------------------------------------------------------------------------------------------------------


def test_parts_are_closed_in_reverse(tmp_path: Path, parts: Parts) -> None:
    async def main() -> None:
        entrypoint = ClusterEntrypoint(configured(tmp_path), endpoint=parts.endpoint())
        async with entrypoint.open() as component:
            await leads(component)
            leader = await component.retrieval.wait_for_leader(10)
            assert leader.address == "http://localhost:8081"
            assert parts.opened == ORDER
            assert parts.closed == []
        assert parts.closed == ORDER[::-1]
        with pytest.raises(NotLeadingError):
            _ = component.dispatcher

    asyncio.run(main())


def test_drivers_of_a_node_get_the_variables_that_an_admin_names(tmp_path: Path, parts: Parts) -> None:
    async def main() -> None:
        options = {"driver.environment.pass": "AWS_*"}
        environ = {"HOME": str(tmp_path)}
        overrides = {"data.dir": str(tmp_path / "data"), **options}
        configuration = load_configuration(overrides=overrides, environ=environ, cwd=tmp_path)
        async with ClusterEntrypoint(configuration).open():
            assert parts.pool_options["passed"] == ("AWS_*",)

    asyncio.run(main())


def test_node_without_a_door_publishes_its_name(tmp_path: Path, parts: Parts) -> None:
    async def main() -> None:
        async with ClusterEntrypoint(configured(tmp_path)).open() as component:
            leader = await component.retrieval.wait_for_leader(10)
            assert leader.address == f"{os.uname().nodename}:{os.getpid()}"

    asyncio.run(main())


@pytest.mark.parametrize("part", [p for p in ORDER if p != "executor"])
@pytest.mark.parametrize("error", [OSError(98, "Address already in use"), StoreBrokenError("it is damaged")])
def test_part_that_cannot_start_is_named_and_what_was_opened_is_closed(
    tmp_path: Path, parts: Parts, part: str, error: Exception
) -> None:
    parts.failing, parts.error = part, error

    async def main() -> None:
        with pytest.raises(ServiceStartError, match=f"^the {part} could not start: ") as caught:
            async with ClusterEntrypoint(configured(tmp_path), endpoint=parts.endpoint()).open():
                pytest.fail("it must not serve")
        assert str(error) in str(caught.value)
        assert caught.value.part == part
        assert caught.value.__cause__ is error

    asyncio.run(main())
    before = ORDER[: ORDER.index(part)]
    assert parts.opened == before
    # A runner that could not start is closed all the same: it may have begun to.
    assert parts.closed == [*(["dispatcher runner"] if part == "dispatcher runner" else []), *before[::-1]]


def test_directory_that_cannot_be_made(tmp_path: Path, parts: Parts) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "clusters").write_text("in the way")

    async def main() -> None:
        with pytest.raises(ServiceStartError, match=r"^the data directory could not start: .*clusters"):
            async with ClusterEntrypoint(configured(tmp_path)).open():
                pass

    asyncio.run(main())
    assert parts.log == []


def test_directory_of_jobs_that_cannot_be_made_closes_the_pool(tmp_path: Path, parts: Parts) -> None:
    root = tmp_path / "data" / "clusters" / "default"
    root.mkdir(parents=True)
    (root / "jobs").write_text("in the way")

    async def main() -> None:
        with pytest.raises(ServiceStartError, match=r"^the driver pool could not start: .*jobs"):
            async with ClusterEntrypoint(configured(tmp_path)).open():
                pass

    asyncio.run(main())
    assert parts.closed == ["driver pool", "high-availability services"]


def test_directory_of_ended_jobs_that_cannot_be_made(tmp_path: Path, parts: Parts) -> None:
    root = tmp_path / "data" / "clusters" / "default"
    root.mkdir(parents=True)
    (root / "finished").write_text("in the way")

    async def main() -> None:
        with pytest.raises(ServiceStartError, match="finished"):
            async with ClusterEntrypoint(configured(tmp_path)).open():
                pass

    asyncio.run(main())


def test_unknown_enricher_is_named_and_everything_closed(tmp_path: Path, parts: Parts) -> None:
    async def main() -> None:
        with pytest.raises(FiresteelError, match=r"jobmanager\.failure-enrichers.*'nope'"):
            async with ClusterEntrypoint(configured(tmp_path, jobmanager__failure_enrichers="nope")).open():
                pass

    asyncio.run(main())
    assert parts.closed == parts.opened[::-1]


def test_error_of_whoever_uses_the_node_passes_through_and_closes_it(tmp_path: Path, parts: Parts) -> None:
    async def main() -> None:
        with pytest.raises(ZeroDivisionError):
            async with ClusterEntrypoint(configured(tmp_path), endpoint=parts.endpoint()).open():
                raise ZeroDivisionError

    asyncio.run(main())
    assert parts.closed == ORDER[::-1]


# -- how it ends ------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("signals")
def test_shut_down_by_the_dispatcher(tmp_path: Path, parts: Parts) -> None:
    async def main() -> ApplicationStatus:
        opened: list[DispatcherResourceManagerComponent] = []

        async def shut_down() -> None:
            async with asyncio.timeout(10):
                while not opened:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            await leads(opened[0])
            await opened[0].dispatcher.shut_down()

        door = parts.endpoint(shut_down)

        def remember(component: DispatcherResourceManagerComponent) -> contextlib.AbstractAsyncContextManager[str]:
            opened.append(component)
            return door(component)

        return await ClusterEntrypoint(configured(tmp_path), endpoint=remember).run()

    assert asyncio.run(main()) is ApplicationStatus.SUCCEEDED
    assert parts.closed == ORDER[::-1]


@pytest.mark.usefixtures("signals")
def test_fatal_error_ends_the_node_with_its_own_code(
    tmp_path: Path, parts: Parts, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> ApplicationStatus:
        entrypoint: ClusterEntrypoint

        async def break_down() -> None:
            entrypoint.on_fatal(ZeroDivisionError("a bug of ours"))
            entrypoint.end(ApplicationStatus.SUCCEEDED)  # the first reason counts

        entrypoint = ClusterEntrypoint(configured(tmp_path), endpoint=parts.endpoint(break_down))
        return await entrypoint.run()

    status = asyncio.run(main())
    assert (status, status.exit_code) == (ApplicationStatus.FATAL_ERROR, 70)
    assert "fatal error: a bug of ours" in caplog.text
    assert "ZeroDivisionError" in caplog.text, "with its traceback"
    assert parts.closed == ORDER[::-1]


@pytest.mark.usefixtures("signals")
def test_leader_that_cannot_recover_is_fatal(tmp_path: Path, parts: Parts, caplog: pytest.LogCaptureFixture) -> None:
    parts.provider_error = EnvironmentNotReadyError("no Java")

    async def main() -> ApplicationStatus:
        return await asyncio.wait_for(ClusterEntrypoint(configured(tmp_path)).run(), 20)

    assert asyncio.run(main()) is ApplicationStatus.FATAL_ERROR
    assert "no Java" in caplog.text


@pytest.mark.usefixtures("signals")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_it(tmp_path: Path, parts: Parts, number: signal.Signals) -> None:
    async def main() -> ApplicationStatus:
        async def send() -> None:
            async with asyncio.timeout(10):
                while "open dispatcher runner" not in parts.log:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            os.kill(os.getpid(), number)

        return await ClusterEntrypoint(configured(tmp_path), endpoint=parts.endpoint(send)).run()

    assert asyncio.run(main()) is ApplicationStatus.SUCCEEDED
    assert parts.closed == ORDER[::-1]


@pytest.mark.usefixtures("signals")
def test_signal_before_it_serves(tmp_path: Path, parts: Parts) -> None:
    async def main() -> ApplicationStatus:
        @contextlib.asynccontextmanager
        async def slow_door(_: DispatcherResourceManagerComponent) -> AsyncIterator[str]:
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.sleep(0.1)
            yield "nowhere"

        return await ClusterEntrypoint(configured(tmp_path), endpoint=slow_door).run()

    assert asyncio.run(main()) is ApplicationStatus.CANCELED


@pytest.mark.usefixtures("signals")
def test_hang_up_is_ignored(tmp_path: Path, parts: Parts) -> None:
    """A node that was started in a terminal survives it."""

    async def main() -> ApplicationStatus:
        entrypoint: ClusterEntrypoint

        async def send() -> None:
            os.kill(os.getpid(), signal.SIGHUP)
            await asyncio.sleep(0.05)
            entrypoint.end(ApplicationStatus.UNKNOWN)

        entrypoint = ClusterEntrypoint(configured(tmp_path), endpoint=parts.endpoint(send))
        return await entrypoint.run()

    assert asyncio.run(main()) is ApplicationStatus.UNKNOWN


@pytest.mark.usefixtures("signals")
def test_part_that_cannot_start_is_told_without_a_traceback(
    tmp_path: Path, parts: Parts, caplog: pytest.LogCaptureFixture
) -> None:
    parts.failing, parts.error = "engine provider", EnvironmentNotReadyError("no Java was found; install one")

    async def main() -> ApplicationStatus:
        return await ClusterEntrypoint(configured(tmp_path)).run()

    status = asyncio.run(main())
    assert (status, status.exit_code) == (ApplicationStatus.START_FAILED, 4)
    assert "the engine provider could not start: no Java was found; install one" in caplog.text
    assert "Traceback" not in caplog.text


@pytest.mark.usefixtures("signals")
def test_error_while_closing_is_no_failed_start(tmp_path: Path, parts: Parts) -> None:
    parts.close_error = StoreBrokenError("the disk is full")

    async def main() -> ApplicationStatus:
        entrypoint: ClusterEntrypoint

        async def end() -> None:
            entrypoint.end(ApplicationStatus.SUCCEEDED)

        entrypoint = ClusterEntrypoint(configured(tmp_path), endpoint=parts.endpoint(end))
        return await entrypoint.run()

    assert asyncio.run(main()) is not ApplicationStatus.START_FAILED


def test_exit_codes_are_told_apart() -> None:
    codes = [s.exit_code for s in ApplicationStatus]
    assert len(set(codes)) == len(codes)
    assert all(0 <= c < 256 for c in codes)
    assert ApplicationStatus.SUCCEEDED.exit_code == 0
