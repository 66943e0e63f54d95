"""When an interactive session ends: by its own clock, without an engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import grpc
import pytest

from firesteel.driver.interactive import SessionEnd, keep
from firesteel.spark_connect.operation import Outcome
from firesteel.spark_connect.session import RECONNECT_SECONDS


class Gone(grpc.RpcError):  # type: ignore[misc]
    def __init__(self, text: str) -> None:
        self._text = text

    def details(self) -> str:
        return self._text


@dataclass
class Engine:
    """A session whose user does at each second what a test says, on a clock that jumps."""

    at: dict[int, Callable[[Engine], None]] = field(default_factory=dict)
    now: float = 0.0
    operations_: dict[str, Outcome] = field(default_factory=dict)
    stream: bool = False
    error: Exception | None = None
    asked_for_streams: int = 0

    def sleep(self, seconds: float) -> None:
        for moment in range(int(self.now) + 1, int(self.now + seconds) + 1):
            if (act := self.at.get(moment)) is not None:
                act(self)
        self.now += seconds

    def operations(self) -> dict[str, Outcome]:
        if self.error is not None:
            raise self.error
        return dict(self.operations_)

    def streams(self) -> bool:
        if self.error is not None:
            raise self.error
        self.asked_for_streams += 1
        self.operations_[f"streams-{self.asked_for_streams}"] = Outcome.SUCCEEDED
        return self.stream

    def keep(self, idle_timeout: float) -> SessionEnd:
        return keep(self, idle_timeout, clock=lambda: self.now, sleep=self.sleep)


def runs(name: str, outcome: Outcome = Outcome.SUCCEEDED) -> Callable[[Engine], None]:
    return lambda engine: engine.operations_.update({name: outcome})


def test_session_in_which_nothing_runs_ends_after_its_time() -> None:
    engine = Engine()
    assert engine.keep(60) is SessionEnd.IDLE
    assert 60 <= engine.now <= 64
    assert engine.asked_for_streams == 1


def test_each_new_operation_begins_the_time_anew() -> None:
    engine = Engine({50: runs("a"), 100: runs("b")})
    assert engine.keep(60) is SessionEnd.IDLE
    assert 160 <= engine.now <= 166


def test_operation_that_runs_for_long_keeps_the_session() -> None:
    engine = Engine({10: runs("a", Outcome.RUNNING), 500: runs("a")})
    assert engine.keep(60) is SessionEnd.IDLE
    assert 558 <= engine.now <= 566


def test_streams_keep_the_session_though_nothing_else_runs() -> None:
    engine = Engine({400: lambda e: setattr(e, "stream", False)}, stream=True)
    assert engine.keep(60) is SessionEnd.IDLE
    assert 400 < engine.now < 500
    assert engine.asked_for_streams >= 6


@pytest.mark.parametrize("kind", ["SESSION_CLOSED", "SESSION_NOT_FOUND", "SESSION_CHANGED"])
def test_session_that_its_user_stopped_is_over(kind: str) -> None:
    engine = Engine({30: lambda e: setattr(e, "error", Gone(f"[INVALID_HANDLE.{kind}] ..."))})
    assert engine.keep(600) is SessionEnd.CLOSED
    assert engine.now <= 34


def test_error_of_the_library_tells_the_end_too() -> None:
    closed = RuntimeError("(SparkSQLException) [INVALID_HANDLE.SESSION_CLOSED] Session was closed.")
    engine = Engine({30: lambda e: setattr(e, "error", closed)})
    assert engine.keep(600) is SessionEnd.CLOSED


def test_engine_that_is_away_for_a_moment_ends_nothing() -> None:
    engine = Engine({30: lambda e: setattr(e, "error", Gone("")), 40: lambda e: setattr(e, "error", None)})
    assert engine.keep(60) is SessionEnd.IDLE


def test_engine_that_stays_away_is_an_error() -> None:
    engine = Engine({30: lambda e: setattr(e, "error", Gone("connection refused"))})
    with pytest.raises(Gone):
        engine.keep(600)
    assert 30 + RECONNECT_SECONDS <= engine.now <= 36 + RECONNECT_SECONDS
