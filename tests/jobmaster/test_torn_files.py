"""Files of an attempt that are torn, or say what nobody understands: the attempt ends with a result, and nothing hangs."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar, cast

import pytest
from tests.jobmaster.local_attempts import Leader, dead, fake_engine, leading, locked, numbers, prepared, taken
from tests.support.guards import call, certain

from firesteel.attempts import claim
from firesteel.attempts.attempt import AttemptDirectory, AttemptResult, AttemptState
from firesteel.attempts.claim import claimed
from firesteel.config import Configuration
from firesteel.errors import FiresteelError
from firesteel.failure import FailureKind
from firesteel.jobmaster.executor import Presence
from firesteel.processes import ProcessIdentity
from firesteel.types import AttemptId, new_job_id
from firesteel.worker.pool import DriverPool

T = TypeVar("T")
Scene = Callable[[Leader], Coroutine[Any, Any, None]]

TORN = {
    "empty": b"",
    "half": b'{"state": "FAI',
    "no text": b"\xff\xfe{}",
    "a list": b"[1]",
    "a number": b"7",
    "text": b'"x"',
    "other keys": b'{"x": 1}',
}
torn = pytest.mark.parametrize("raw", TORN.values(), ids=TORN.keys())


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("firesteel.worker.settling.CLAIM_SECONDS", 0.3)
    monkeypatch.setattr("firesteel.worker.executor.FIND_SECONDS", 0.1)
    yield
    # Threads that wait for themselves would keep the run from ending. There are none, unless a test here has failed.
    for guard in list(claim._GUARDS.values()):
        with contextlib.suppress(RuntimeError):
            guard.lock.release()


def play(configuration: Configuration, root: Path, scene: Scene) -> None:
    async def main() -> None:
        # Nothing here is worth a process: a pool that cannot make any.
        async with leading(configuration, root, cast(DriverPool, object())) as leader:
            await scene(leader)

    asyncio.run(main())


async def ends(answer: Awaitable[T], seconds: float = 3) -> T:
    return await asyncio.wait_for(answer, seconds)


def written(leader: Leader, name: str, raw: bytes) -> AttemptId:
    """An attempt of which there is this file, and no more."""
    attempt = AttemptId(new_job_id(), 1)
    directory = leader.directory(attempt)
    directory.root.mkdir(parents=True)
    (directory.root / name).write_bytes(raw)
    return attempt


async def is_done_with(leader: Leader, attempt: AttemptId, result: AttemptResult) -> None:
    """Everybody who asks from now on hears the same."""
    assert await ends(leader.executor.find(attempt)) is Presence.ENDED
    assert await ends(leader.executor.wait(attempt)) == result
    assert await ends(leader.executor.fence(attempt, guard=certain)) == result
    await ends(leader.executor.cancel(attempt, guard=certain))
    await ends(leader.executor.stop(attempt))
    await ends(leader.executor.forget(attempt, guard=certain))
    assert leader.directory(attempt).read_result() == result


# -- the result ---------------------------------------------------------------------------------------------------


@torn
@pytest.mark.parametrize("asked", ["wait", "fence"])
def test_torn_result_is_put_aside_and_replaced(
    configuration: Configuration, tmp_path: Path, raw: bytes, asked: str
) -> None:
    async def scene(leader: Leader) -> None:
        attempt = written(leader, "result.json", raw)
        assert await ends(leader.executor.find(attempt)) is Presence.ENDED
        result = await ends(call(leader.executor, asked, attempt))
        assert result.state is AttemptState.FAILED
        assert result.failure is not None
        assert result.failure.kind is FailureKind.KILLED
        assert (leader.directory(attempt).root / "result.unreadable.json").read_bytes() == raw
        await is_done_with(leader, attempt, result)

    play(configuration, tmp_path, scene)


@pytest.mark.parametrize("adopted", [False, True])
def test_torn_result_of_a_driver_that_is_gone(configuration: Configuration, tmp_path: Path, adopted: bool) -> None:
    async def scene(leader: Leader) -> None:
        attempt = prepared(leader, numbers(1, tmp_path / "o"), None)
        taken(leader, attempt, dead())
        directory = leader.directory(attempt)
        directory.stderr.write_text("MemoryError\n")
        directory.result.write_bytes(TORN["half"])
        result = await ends(leader.executor.wait(attempt) if adopted else leader.executor.fence(attempt, guard=certain))
        assert result.state is AttemptState.FAILED
        assert result.failure is not None
        assert "exit code is unknown" in result.failure.message
        await is_done_with(leader, attempt, result)

    play(configuration, tmp_path, scene)


# -- who the driver is --------------------------------------------------------------------------------------------


@torn
@pytest.mark.parametrize("asked", ["wait", "fence", "cancel"])
def test_torn_driver_file_of_a_driver_that_is_gone(
    configuration: Configuration, tmp_path: Path, raw: bytes, asked: str
) -> None:
    """Nobody holds the attempt. Whoever finds that out holds it at that moment, and must not wait for itself."""

    async def scene(leader: Leader) -> None:
        attempt = written(leader, "driver.json", raw)
        assert await ends(leader.executor.find(attempt)) is Presence.RUNNING
        await ends(call(leader.executor, asked, attempt))
        result = leader.directory(attempt).read_result()
        assert result is not None
        assert result.state is (AttemptState.FAILED if asked == "wait" else AttemptState.CANCELED)
        await is_done_with(leader, attempt, result)

    play(configuration, tmp_path, scene)


@torn
def test_torn_driver_file_inside_the_claim(tmp_path: Path, raw: bytes) -> None:
    directory = AttemptDirectory(tmp_path)
    directory.driver.write_bytes(raw)
    found: list[ProcessIdentity | None] = []

    def look() -> None:
        with claimed(tmp_path) as mine:
            assert mine
            found.append(directory.read_driver(claimed=True))

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    thread.join(3)
    assert found == [None]
    assert directory.read_driver() is None


def test_torn_driver_file_of_a_driver_that_runs(configuration: Configuration, tmp_path: Path) -> None:
    """It is the one that holds the attempt: waited for, and ended when the attempt is fenced."""

    async def scene(leader: Leader) -> None:
        attempt = prepared(leader, numbers(1, tmp_path / "o"), None)
        directory = leader.directory(attempt)
        directory.driver.write_bytes(TORN["half"])
        with locked(directory) as pid:
            driver = ProcessIdentity.of(pid)
            assert driver is not None
            assert directory.read_driver() == driver
            waiting = asyncio.create_task(leader.executor.wait(attempt))
            done, _ = await asyncio.wait({waiting}, timeout=0.2)
            assert not done
            result = await ends(leader.executor.fence(attempt, guard=certain))
            assert not driver.alive
        assert result.state is AttemptState.CANCELED
        assert await ends(waiting) == result
        await is_done_with(leader, attempt, result)

    play(configuration, tmp_path, scene)


# -- what was to be done ------------------------------------------------------------------------------------------


@torn
def test_torn_spec_says_which_file_it_is(tmp_path: Path, raw: bytes) -> None:
    directory = AttemptDirectory(tmp_path)
    directory.spec.write_bytes(raw)
    with pytest.raises(FiresteelError, match=r"spec\.json cannot be read"):
        directory.read_spec()


@torn
@pytest.mark.parametrize("asked", ["wait", "fence"])
def test_torn_spec_of_an_attempt_that_nobody_took(
    configuration: Configuration, tmp_path: Path, raw: bytes, asked: str
) -> None:
    async def scene(leader: Leader) -> None:
        attempt = written(leader, "spec.json", raw)
        assert await ends(leader.executor.find(attempt)) is Presence.ABSENT
        with pytest.raises(FiresteelError, match=r"spec\.json cannot be read"):
            await ends(leader.executor.checkpoint(attempt))
        result = await ends(call(leader.executor, asked, attempt))
        assert result.state is (AttemptState.FAILED if asked == "wait" else AttemptState.CANCELED)
        await is_done_with(leader, attempt, result)

    play(configuration, tmp_path, scene)


@pytest.mark.parametrize("asked", ["wait", "fence"])
def test_torn_spec_of_a_driver_that_is_gone(configuration: Configuration, tmp_path: Path, asked: str) -> None:
    """Which engine it was on cannot be found out any more."""

    async def scene(leader: Leader) -> None:
        attempt = prepared(leader, numbers(1, tmp_path / "o"), fake_engine(dead()))
        taken(leader, attempt, dead())
        leader.directory(attempt).spec.write_bytes(TORN["half"])
        if asked == "wait":
            result = await ends(leader.executor.wait(attempt), 1)
            assert result.state is AttemptState.FAILED
        else:
            result = await ends(leader.executor.fence(attempt, unreachable=True, guard=certain))
            assert result.state is AttemptState.CANCELED
        await is_done_with(leader, attempt, result)

    play(configuration, tmp_path, scene)
