"""Attempts of another host in a directory that hosts share: not seen is not dead. They are not ended from here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.jobmaster.job_desk import JOB
from tests.support.guards import call, certain

from firesteel.attempts.attempt import AttemptDirectory, AttemptState
from firesteel.config import load_configuration
from firesteel.errors import AttemptElsewhereError
from firesteel.fs.files import private_dir, write_json
from firesteel.hosts import Host
from firesteel.types import AttemptId
from firesteel.worker.executor import LocalAttemptExecutor

OTHER = Host("other-host", "m2", "b2")


class Files:
    """An attempt that a leader of another host has started, in a directory that both have."""

    def __init__(self, root: Path, **options: str) -> None:
        self.attempt = AttemptId(JOB, 1)
        self.directory = AttemptDirectory(private_dir(root / "jobs" / JOB / "attempts" / "1"))
        write_json(self.directory.spec, {"host": str(OTHER)})
        # No such process is here; that is all that can be seen.
        write_json(self.directory.driver, {"pid": 1, "started": "never"})
        overrides = {"data.dir": str(root), **{k.replace("__", ".").replace("_", "-"): v for k, v in options.items()}}
        self.configuration = load_configuration(overrides=overrides, environ={"HOME": str(root)})

    def ask(self, call: Callable[[LocalAttemptExecutor], Any]) -> Any:
        async def inside() -> Any:
            executor = LocalAttemptExecutor(self.configuration, self.directory.jobs)
            try:
                return await asyncio.wait_for(call(executor), 30)
            finally:
                await executor.close()

        return asyncio.run(inside())


@pytest.mark.parametrize("act", ["fence", "cancel", "forget"])
def test_executor_ends_no_attempt_of_another_host(tmp_path: Path, act: str) -> None:
    files = Files(tmp_path)
    before = sorted(p.name for p in files.directory.root.iterdir())
    with pytest.raises(AttemptElsewhereError, match="host other-host"):
        files.ask(lambda executor: call(executor, act, files.attempt))
    after = sorted(p.name for p in files.directory.root.iterdir())
    assert after == before  # not even a mark that it was called off


def test_executor_does_not_take_a_driver_that_it_cannot_see_for_dead(tmp_path: Path) -> None:
    files = Files(tmp_path)

    async def waits(executor: LocalAttemptExecutor) -> bool:
        waiting = asyncio.ensure_future(executor.wait(files.attempt))
        done, _ = await asyncio.wait([waiting], timeout=1)
        waiting.cancel()
        return not done

    assert files.ask(waits)
    assert not files.directory.has_result


def test_attempt_with_a_result_is_nobodys_any_more(tmp_path: Path) -> None:
    files = Files(tmp_path)
    private_dir(files.directory.output)
    write_json(files.directory.result, {"state": "FINISHED", "ended_at": 1.0})
    result = files.ask(lambda executor: executor.fence(files.attempt, guard=certain))
    assert result.state is AttemptState.FINISHED
