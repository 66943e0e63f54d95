"""Each check against a history that is well and against one that is not: a judge that never convicts proves nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from firesteel_chaos.history import Event, History, read_history
from firesteel_chaos.invariants import TABLE, Bounds, check
from firesteel_chaos.report import summary

JOB = "a" * 32
OTHER = "b" * 32


class Tale:
    """A history written by hand."""

    def __init__(self, load: str = "script", **plan: Any) -> None:
        self.events: list[Event] = []
        self._calls = 0
        self.say(0.0, "job", job=JOB, load=load, digest="d", plan={"ends": "FINISHED", **plan})

    def say(self, at: float, kind: str, **data: Any) -> Tale:
        self.events.append(Event(at, kind, data))
        return self

    def call(
        self, at: float, what: str, outcome: str, answer: Any = None, *, job: str | None = JOB, **args: Any
    ) -> Tale:
        self._calls += 1
        self.say(at, "call", id=self._calls, client="c", what=what, job=job, args=args)
        told = {"value": answer} if outcome == "ok" else {"error": answer or ""}
        return self.say(at + 0.1, "answer", id=self._calls, outcome=outcome, **told)

    def submit(self, at: float = 1.0) -> Tale:
        return self.call(at, "submit", "ok", JOB)

    def result(self, at: float, status: str = "FINISHED", **more: Any) -> Tale:
        told = {"status": status, "attempt": 1, "restarts": 0, "ended_at": 100.0, "stopped": False, "digest": "d"}
        return self.call(at, "result", "ok", {**told, **more})

    def driver(self, at: float, *, attempt: int = 1, pid: int = 7, alive: bool = True, **more: Any) -> Tale:
        told = {"attempt": attempt, "pid": pid, "started": str(pid), "alive": alive, "taken": at, "by": None}
        return self.say(at, "driver", job=JOB, **{**told, **more})

    def stored(self, at: float, *parts: str, **more: Any) -> Tale:
        told = {"digest": "s", "attempt": None, "cancel": False, "result": None}
        return self.say(at, "stored", job=JOB, parts=list(parts), **{**told, **more})

    def ended(self, at: float, *parts: str, dirty: bool = False, **more: Any) -> Tale:
        result = {"status": "FINISHED", "dirty": dirty, "attempts": 1, "restarts": 0, "ended_at": 100.0, **more}
        return self.stored(at, *(parts or ("results",)), result=result)

    def run(self, began: float, ended: float | None, how: str = "finished", **more: Any) -> Tale:
        return self.say(90.0, "run", job=JOB, number=1, pid=7, began=began, ended=ended, how=how, **more)

    def fault(self, at: float, healed: float | None, name: str = "F1", *harms: str, **more: Any) -> Tale:
        self.say(at, "fault", id=at, name=name, what="", target="n1", harms=list(harms or ("nodes",)), **more)
        return self if healed is None else self.say(healed, "healed", id=at, name=name)

    def write(self, began: float, epoch: int, *, node: int = 1, outcome: str = "ok") -> Tale:
        told = {"node": node, "epoch": epoch, "path": f"jobs/{JOB}", "ended": began + 0.1, "outcome": outcome}
        return self.say(began + 0.5, "write", began=began, **told)

    def leader(self, at: float, epoch: int | None, address: str = "http://n1", node: str = "n1") -> Tale:
        return self.say(at, "leader", node=node, epoch=epoch, address=address if epoch else None, answered=True)

    def node(self, at: float, name: str, pid: int, **used: int) -> Tale:
        return self.say(at, "node", node=name, address=f"http://{name}", pid=pid, alive=True, **used)

    def store(self, at: float, epoch: int, holder: str = "", **rows: int) -> Tale:
        return self.say(at, "store", epoch=epoch, holder=holder, rows=rows)

    def state(self, at: float, status: str, attempt: int | None = None, node: str = "n1") -> Tale:
        return self.say(at, "job-state", job=JOB, status=status, attempt=attempt, restarts=None, node=node)

    def until(self, at: float, *still_open: str) -> Tale:
        return self.say(at, "settled", open=list(still_open))


USED = {"rss_kb": 100_000, "descriptors": 50, "threads": 20}
GONE = "JobNotFoundError: no job is known here"


def _pressed(tale: Tale, what: str, growth: int) -> Tale:
    for n in range(101):
        tale.node(n * 6.0, "n1", 1, **{**USED, what: USED[what] + growth * n // 100})
    return tale


LOST = ("drivers", "engines", "hosts")


def _moved(lost: str, *, after: float) -> Tale:
    """A host is lost, and the job that ran on w1 runs again so much later."""
    tale = Tale("streaming").driver(1, site="w1").fault(5, 40, "F27", *LOST, sites=[lost])
    return tale.driver(6, alive=False, site="w1").driver(5 + after, attempt=2, pid=8, site="w3").until(90)


GOOD: dict[str, list[Callable[[], Tale]]] = {
    "I1": [
        lambda: (
            Tale().submit().stored(2, "graphs").ended(5).result(6).call(9, "list", "ok", [[JOB, "FINISHED"]], job=None)
        ),
        # Not acknowledged: it may be lost.
        lambda: Tale().call(1, "submit", "unknown").call(3, "status", "refused", GONE),
    ],
    "I2": [
        lambda: Tale().driver(1).driver(5, alive=False).driver(5.01, attempt=2, pid=8),
        lambda: Tale(failures=1, restarts=2, delay=0.3).run(1, 2, "failed").run(3, 4),
        # A process that has nothing to do with it was put in the place of its driver.
        lambda: Tale().fault(3, 9, "F18", "drivers", stranger=99).driver(1).driver(4, pid=99).driver(5, alive=False),
        # Its host stood still, and nobody there could end it.
        lambda: (
            Tale()
            .driver(1, site="w1")
            .fault(5, 30, "F29", *LOST, "frozen", sites=["w1"])
            .driver(22, attempt=2, pid=8, site="w2")
        ),
    ],
    "I3": [
        # Killed between its last line and its result.
        lambda: Tale().fault(2.5, 3, "F13", "drivers").run(1, 2).run(3, 4),
        lambda: Tale().submit().call(2, "submit", "ok", JOB).call(3, "submit-other", "refused", "DuplicateJobError: x"),
    ],
    "I4": [lambda: Tale().call(1, "submit", "unknown").call(3, "submit", "ok", JOB).until(50)],
    "I5": [
        lambda: Tale().state(1, "RUNNING").state(3, "FINISHED").result(4).result(50),
        lambda: Tale().ended(3, "graphs", "jobs", "results", dirty=True).ended(4),
        lambda: Tale().driver(1).ended(3).run(1, 2.5),
        # Asked before, answered after.
        lambda: Tale().result(3).say(3.5, "job-state", job=JOB, status="RUNNING", node="n1", asked=2.9),
    ],
    "I6": [
        # Epochs may skip, and a write of an old one may still be under way when the new one is granted.
        lambda: (
            Tale()
            .store(1, 1, holder="x")
            .store(1.5, 1)
            .store(2, 1001, holder="y")
            .leader(1, 1)
            .leader(2, 1001, "http://n2")
        ),
        lambda: Tale().write(1, 1).write(1.95, 1).write(1.95, 2, node=2).write(3, 1, outcome="fenced"),
    ],
    "I7": [
        lambda: Tale().node(0, "n1", 1).node(0, "n2", 2).leader(1, 1).leader(9, 2, "http://n2").driver(12, by=2),
        # It had begun before it could know.
        lambda: Tale().node(0, "n1", 1).node(0, "n2", 2).leader(1, 1).leader(9, 2, "http://n2").driver(10, by=1),
        # It leads again.
        lambda: (
            Tale()
            .node(0, "n1", 1)
            .node(0, "n2", 2)
            .leader(1, 1)
            .leader(9, 2, "http://n2")
            .leader(20.5, 3)
            .driver(20, by=1)
        ),
    ],
    "I8": [
        lambda: Tale("streaming").driver(1).say(2, "query", job=JOB, attempt=1, runs={"o": "r"}).fault(5, 9),
        lambda: (
            Tale("streaming").driver(1).fault(5, 9, "F13", "drivers").driver(6, alive=False).driver(8, attempt=2, pid=8)
        ),
        lambda: Tale(failures=1).driver(1).driver(3, alive=False).driver(4, attempt=2, pid=8),
        lambda: _moved("w1", after=15.0),
    ],
    "I9": [
        lambda: _moved("w1", after=24.0),
        # It had finished before its host was given up.
        lambda: Tale().submit().driver(1, site="w1").fault(5, 30, "F27", *LOST, sites=["w1"]).ended(20).until(90),
        lambda: Tale().fault(5, 9).say(5.5, "reach", ok=False).say(18, "reach", ok=True).until(50),
        # A fault that is never healed excuses for as long as it lasts.
        lambda: Tale().fault(5, None).say(5.5, "reach", ok=False).say(80, "reach", ok=True),
        lambda: Tale().say(30, "recovered", round=1, seconds=4.0),
        lambda: Tale().call(1, "submit", "unknown").until(50, JOB),
    ],
    "I10": [
        lambda: (
            Tale(ends="CANCELED").submit().driver(2).call(5, "cancel", "ok").driver(9, alive=False).ended(9).until(50)
        ),
        # It had ended before the wish was known.
        lambda: (
            Tale(ends="CANCELED")
            .submit()
            .driver(2)
            .call(5, "cancel", "ok")
            .driver(5.4, alive=False)
            .ended(5.5)
            .result(6, "FINISHED")
            .until(50)
        ),
        # Whoever was to end it was away.
        lambda: (
            Tale(ends="CANCELED")
            .driver(2)
            .call(5, "cancel", "ok")
            .fault(6, 30)
            .driver(40, alive=False)
            .ended(41, status="CANCELED")
            .until(80)
        ),
    ],
    "I11": [
        lambda: (
            Tale(failures=2, restarts=3, delay=0.3)
            .submit()
            .run(1, 2, "failed")
            .run(2.4, 3, "failed")
            .run(3.5, 4)
            .result(5, attempt=3, restarts=2)
        ),
        # A fault that kills drivers counts too.
        lambda: (
            Tale(failures=2, restarts=3, delay=0.3)
            .submit()
            .fault(1.2, 1.3, "F13", "drivers")
            .run(1, None, "")
            .run(2, 2.5, "failed")
            .run(3, 4)
            .result(5, attempt=3, restarts=2)
        ),
    ],
    "I12": [
        lambda: (
            Tale().ended(3, "graphs", "jobs", "results", dirty=True).ended(8).driver(1).driver(4, alive=False).until(90)
        ),
        lambda: Tale().ended(3, "graphs", "results", dirty=True).fault(5, 60).ended(75).until(90),
    ],
    "I13": [
        lambda: Tale().stored(1, "graphs").ended(3, "graphs", "jobs", "results", dirty=True).ended(4),
        lambda: Tale().say(5, "savepoint", job=JOB, path="/s", present=True),
    ],
    "I14": [
        lambda: (
            Tale("streaming")
            .call(5, "operation", "ok", {"location": "/s"}, trigger="t", of="stop")
            .result(9, stopped=True)
        ),
        # Refused: it runs on, and is stopped by another wish.
        lambda: (
            Tale("streaming")
            .call(5, "operation", "refused", "SavepointError: x", trigger="t", of="stop")
            .call(7, "operation", "ok", {}, trigger="u", of="stop")
            .result(9, stopped=True)
        ),
        lambda: Tale("streaming", restore="/s").result(9, stopped=True),
    ],
    "I15": [
        lambda: Tale("batch").result(3).say(4, "output", job=JOB, expected=5, found=5, missing=0, repeated=0).until(9)
    ],
    "I17": [lambda: Tale(program="p").run(1, 2, digest="p")],
    "I18": [lambda: Tale().state(1, "RUNNING", 1).state(2, "RECONCILING").state(3, "RUNNING", 2, "n2")],
    "I19": [
        lambda: (
            Tale()
            .call(1, "savepoint", "ok", "t", trigger="t")
            .call(2, "operation", "ok", {}, trigger="t", of="savepoint")
        ),
        # It was never acknowledged.
        lambda: (
            Tale()
            .call(1, "savepoint", "unknown", trigger="t")
            .call(2, "operation", "refused", "OperationNotFoundError: x", trigger="t", of="savepoint")
        ),
    ],
    "I21": [
        lambda: (
            Tale()
            .say(1, "engine", engine="e", pid=1, started="1", alive=True)
            .say(5, "engine", engine="e", pid=1, started="1", alive=False)
            .say(6, "engine", engine="f", pid=2, started="2", alive=True)
            .until(90)
        ),
    ],
    "I22": [
        lambda: Tale().driver(1).driver(5, alive=False).ended(6).until(90),
        lambda: Tale().driver(1).driver(5, alive=False).stored(8, "graphs", "jobs", attempt=2).until(90),
        # While nobody led, nobody could know.
        lambda: Tale().driver(1).driver(5, alive=False).fault(4, 50).ended(60).until(90),
    ],
    "I23": [
        lambda: _pressed(Tale(), "rss_kb", 20_000),
        # A process that is young says nothing.
        lambda: (
            Tale()
            .node(0, "n1", 1, rss_kb=1, descriptors=1, threads=1)
            .node(99, "n1", 1, rss_kb=10**9, descriptors=1, threads=1)
        ),
        lambda: Tale().until(10).store(60, 1, results=400),
    ],
    "I24": [lambda: Tale().leader(1, 1).fault(5, 30, "F8", "quorum", "store").leader(8, None).leader(33, 2)],
    "I26": [lambda: Tale().result(3).result(50)],
}

BAD: dict[str, list[Callable[[], Tale]]] = {
    "I1": [
        lambda: Tale().submit().call(3, "result", "refused", GONE),
        lambda: Tale().submit().call(9, "list", "ok", [[OTHER, "FINISHED"]], job=None),
        lambda: Tale().submit().stored(2, "graphs").stored(3),
        lambda: Tale().submit().result(4, digest="another"),
        lambda: Tale().submit().stored(2, "graphs").stored(3, "graphs", digest="another"),
    ],
    "I2": [
        # A host that is cut off ends its drivers before others take over.
        lambda: (
            Tale().driver(1, site="w1").fault(5, 30, "F28", *LOST, sites=["w1"]).driver(22, attempt=2, pid=8, site="w2")
        ),
        lambda: Tale().driver(1).driver(4, attempt=2, pid=8).driver(5, alive=False),
        lambda: Tale().run(1, 5, "finished").run(3, 9, "finished"),
    ],
    "I3": [
        lambda: Tale().submit().call(3, "submit-other", "ok", JOB),
        lambda: Tale().submit().call(3, "submit", "refused", "DuplicateJobError: x"),
        lambda: Tale().call(3, "submit", "ok", OTHER),
        lambda: Tale().run(1, 2).run(3, 4),
    ],
    "I4": [lambda: Tale().call(1, "submit", "unknown").until(50)],
    "I5": [
        lambda: Tale().state(1, "FINISHED").state(3, "RUNNING"),
        lambda: Tale().result(3).result(9, "FAILED"),
        lambda: Tale().ended(3).ended(4, ended_at=101.0),
        lambda: Tale().ended(3).stored(4, "graphs"),
        lambda: Tale().ended(3).driver(5, attempt=2),
        lambda: Tale().ended(3).run(5, 6),
    ],
    "I6": [
        lambda: Tale().store(1, 2).store(2, 1),
        lambda: Tale().leader(1, 1).leader(2, 1, "http://n2", "n2"),
        lambda: Tale().leader(1, 2).leader(2, 1),
        lambda: Tale().write(1, 1).write(2, 2, node=2).write(3, 1),
        lambda: Tale().write(1, 1).write(2, 1, node=2),
        lambda: Tale().store(1, 1, holder="x").store(2, 1, holder="y"),
    ],
    "I7": [
        lambda: Tale().node(0, "n1", 1).node(0, "n2", 2).leader(1, 1).leader(9, 2, "http://n2").driver(15, by=1),
        lambda: Tale().write(1, 1, node=1).write(9, 2, node=2).driver(15, by=1),
    ],
    "I8": [
        lambda: (
            Tale("streaming")
            .say(2, "query", job=JOB, attempt=1, runs={"o": "r"})
            .fault(5, 9)
            .say(9, "query", job=JOB, attempt=1, runs={"o": "s"})
        ),
        lambda: Tale("streaming").driver(1).fault(5, 9).driver(6, alive=False).driver(8, attempt=2, pid=8),
        lambda: Tale("streaming").driver(1).driver(6, alive=False).driver(8, pid=8),
        # Another host was lost than the one that had it.
        lambda: _moved("w2", after=15.0),
        # The fault killed the driver of another job.
        lambda: (
            Tale("streaming")
            .driver(1)
            .fault(5, 9, "F13", "drivers", jobs=[OTHER])
            .driver(6, alive=False)
            .driver(8, attempt=2, pid=8)
        ),
        lambda: Tale("batch").submit().fault(5, 9).result(20, "FAILED"),
        lambda: Tale("batch").submit().fault(5, 9).result(20, attempt=2),
    ],
    "I9": [
        lambda: _moved("w1", after=26.0),
        lambda: Tale().submit().driver(1, site="w1").fault(5, 30, "F27", *LOST, sites=["w1"]).until(90),
        lambda: Tale().fault(5, 9).say(5.5, "reach", ok=False).say(30, "reach", ok=True),
        lambda: Tale().say(5.5, "reach", ok=False).say(12, "reach", ok=True),
        lambda: Tale().fault(5, 9).say(5.5, "reach", ok=False).until(60),
        lambda: Tale().say(30, "recovered", round=1, seconds=11.0),
        lambda: Tale().say(30, "recovered", round=1, seconds=None),
        lambda: Tale().submit().until(90, JOB),
    ],
    "I10": [
        lambda: Tale(ends="CANCELED").driver(2).call(5, "cancel", "ok").driver(19, alive=False).ended(9).until(50),
        lambda: Tale(ends="CANCELED").driver(2).call(5, "cancel", "ok").until(50),
        lambda: Tale(ends="CANCELED").call(5, "cancel", "ok").driver(10).driver(11, alive=False).ended(12).until(50),
        lambda: Tale(ends="CANCELED").call(5, "cancel", "ok").run(10, 11).ended(12).until(50),
        lambda: Tale(ends="CANCELED").call(5, "cancel", "ok").ended(6).result(9, "FAILED").until(50),
    ],
    "I11": [
        lambda: Tale(failures=9, restarts=1, delay=0.3).run(1, 2, "failed").run(3, 4, "failed").run(5, 6, "failed"),
        lambda: Tale(failures=1, restarts=3, delay=0.3).run(1, 2, "failed").run(2.1, 4),
        lambda: Tale(failures=2, restarts=3, delay=0.3).submit().run(1, 2, "failed").result(3, "FAILED"),
    ],
    "I12": [
        lambda: Tale().ended(3, "graphs", "jobs", "results", dirty=True).until(90),
        lambda: Tale().ended(3, "results").ended(9, "graphs", "results"),
        lambda: Tale().driver(1).ended(3).until(90),
        lambda: Tale().say(9, "left", job=JOB, what="attempts/1/spec.json"),
    ],
    "I13": [
        lambda: Tale().say(5, "savepoint", job=JOB, path="/s", present=False),
        lambda: Tale().stored(1, "graphs", "jobs").stored(3, "jobs"),
    ],
    "I14": [
        lambda: Tale("streaming").call(5, "operation", "ok", {"location": "/s"}, of="stop").result(9, "FAILED"),
        lambda: (
            Tale("streaming").call(5, "operation", "refused", "SavepointError: x", of="stop").result(9, stopped=True)
        ),
        lambda: Tale("streaming", restore="/s").result(9, "FAILED"),
    ],
    "I15": [
        lambda: Tale("batch").say(4, "output", job=JOB, expected=5, found=4, missing=1, repeated=0),
        lambda: Tale("streaming").say(4, "output", job=JOB, expected=5, found=6, missing=0, repeated=1),
        lambda: Tale("batch").say(4, "output", job=JOB, expected=5, found=6, missing=0, repeated=0, strange=1),
        lambda: Tale("batch").result(3).until(9),
    ],
    "I17": [lambda: Tale(program="p").run(1, 2, digest="q")],
    "I18": [lambda: Tale().state(1, "RUNNING", 2).state(2, "RUNNING", 1, "n2")],
    "I19": [
        lambda: (
            Tale()
            .call(1, "savepoint", "ok", "t", trigger="t")
            .call(2, "operation", "refused", "OperationNotFoundError: x", trigger="t", of="savepoint")
        )
    ],
    "I21": [
        lambda: (
            Tale()
            .say(1, "engine", engine="e", pid=1, started="1", alive=True)
            .say(6, "engine", engine="f", pid=2, started="2", alive=True)
            .until(90)
        ),
    ],
    "I22": [
        lambda: Tale().driver(1).state(2, "RUNNING", 1).driver(5, alive=False).until(90),
        lambda: Tale().driver(1).driver(5, alive=False).fault(4, 20).ended(80).until(90),
    ],
    "I23": [
        lambda: _pressed(Tale(), "rss_kb", 70_000),
        lambda: _pressed(Tale(), "descriptors", 70),
        lambda: _pressed(Tale(), "threads", 40),
        lambda: Tale().until(10).store(60, 1, results=400, graphs=3),
    ],
    "I24": [lambda: Tale().leader(1, 1).fault(5, 30, "F8", "quorum", "store").leader(15, 2)],
    "I26": [
        lambda: Tale().result(3).result(50, attempt=2),
        lambda: Tale().result(3).result(50, ended_at=101.0),
    ],
}

BOUNDS = Bounds(engines=1, isolation=10.0)


def _cases(tales: dict[str, list[Callable[[], Tale]]]) -> list[Any]:
    return [pytest.param(name, tell, id=f"{name}-{n}") for name, all_ in tales.items() for n, tell in enumerate(all_)]


@pytest.mark.parametrize(("name", "tell"), _cases(GOOD))
def test_good_history_is_let_pass(name: str, tell: Callable[[], Tale]) -> None:
    assert [v for v in check(tell().events, bounds=BOUNDS) if v.invariant == name] == []


@pytest.mark.parametrize(("name", "tell"), _cases(BAD))
def test_bad_history_is_found_out(name: str, tell: Callable[[], Tale]) -> None:
    found = [v for v in check(tell().events, bounds=BOUNDS) if v.invariant == name]
    assert found
    assert all(v.job in (JOB, None) and v.text and name in str(v) for v in found)


def test_every_invariant_has_both() -> None:
    judged = {i.name for i in TABLE if i.check is not None}
    assert [i.name for i in TABLE] == [f"I{n}" for n in range(1, 27)]
    assert set(GOOD) == set(BAD) == judged
    # Who is not judged says why, or by whom else.
    assert all(i.seen_by for i in TABLE)


def test_what_a_fault_saw_itself_counts() -> None:
    tale = Tale().say(3, "expectation", fault=1, what="it was not refused", held=False, invariant="I3")
    [found] = check(tale.events)
    assert (found.invariant, found.text) == ("I3", "it was not refused")
    assert check(Tale().say(3, "expectation", fault=1, what="x", held=True, invariant="I3").events) == []


def test_a_watch_that_failed_is_no_good_run() -> None:
    assert check(Tale().say(3, "observer", thread="chaos-looking", error=True).events)


def test_jobs_that_a_fault_made_are_left_alone() -> None:
    for load, judged in (("leftover", set()), ("fault", {"I2"})):
        tale = Tale(load).submit().driver(1).driver(4, attempt=2, pid=8).driver(5, alive=False).until(90, JOB)
        assert {v.invariant for v in check(tale.events)} == judged


def test_the_order_of_lines_does_not_matter() -> None:
    """Threads write; what happened first need not stand first."""
    tale = BAD["I2"][0]()
    assert check(tale.events[::-1]) == check(tale.events)


def test_history_is_read_as_it_was_written(tmp_path: Path) -> None:
    with History(tmp_path / "h.jsonl") as history:
        history.record("job", job=JOB, load="batch", digest="d", plan={})
        history.record("fault", id=1, name="F1", what="ä", target="n1")
        written = history.events()
    with (tmp_path / "h.jsonl").open("a") as cut_off:
        cut_off.write('{"at": 3, "kind": "hea')
    assert read_history(tmp_path / "h.jsonl") == written


def test_report_counts_and_judges() -> None:
    tale = (
        Tale("batch")
        .submit()
        .leader(0.5, 1)
        .driver(2)
        .say(2.5, "round", number=1, seed=5, plan=[], control=False)
        .fault(3, 4)
        .say(3.1, "reach", ok=False)
        .leader(3.5, 2, "http://n2", "n2")
        .say(3.6, "reach", ok=True)
        .driver(6, alive=False)
        .ended(7)
        .result(8)
        .say(9, "output", job=JOB, expected=5, found=5, missing=0, repeated=0)
        .say(9, "recovered", round=1, seconds=0.4)
    )
    unsettled = summary(tale.events, check(tale.events))
    assert not unsettled.violations
    assert not unsettled.good
    report = summary(tale.until(10).events, [])
    assert report.good
    assert (report.rounds, report.leaderships, report.adopted, report.rows) == (1, 2, 1, 5)
    assert (report.faults, report.jobs, report.ends) == ({"F1": 1}, {"batch": 1}, {"FINISHED": 1})
    assert (report.gaps.worst, report.election.worst, report.recovery.worst) == (0.5, 0.5, 0.4)
    text = report.to_markdown()
    assert "| I8 | a failover touches no running job | 0 |" in text
    assert report.to_json()["good"] is True
    bad = summary(tale.events, check(BAD["I8"][0]().events))
    assert not bad.good
    assert "I8 at" in bad.to_markdown()
    assert "NOT good" in bad.to_text()


def test_a_report_tells_what_grew_and_when_nothing_was_judged_i23() -> None:
    young = summary(Tale().node(0, "n1", 1, **USED).node(99, "n1", 1, **USED).until(100).events, [])
    assert "growth of nodes (I23): not judged: no node lived for 240 s" in young.to_text()

    tale = _pressed(Tale(), "threads", 8)
    for at in range(0, 600, 10):
        tale.store(at, 1, results=min(at, 300), graphs=3)
    old = summary(tale.until(600).store(660, 1, results=0).events, [])
    assert [(life.node, life.seconds) for life in old.lives] == [("n1", 600.0)]
    assert (
        "1 lived for 600 s or longer; most: rss_kb 100000 to 100000, descriptors 50 to 50, threads 22.5 to 26.5"
        in old.to_text()
    )
    assert "rows of the store, early to late: 3 to 3 graphs, 220 to 300 results" in old.to_text()


def test_results_that_were_to_be_forgotten_are_not_missed() -> None:
    """Of a cluster that remembers two, the third last may be gone (I1, I5, I13); the second last may not."""

    def told(ends: Sequence[float], gone: float) -> list[str]:
        tale = Tale().submit().stored(2, "graphs").ended(5).stored(gone)
        for n, at in enumerate(ends):
            other = f"{n:032x}"
            tale.say(0.5, "job", job=other, load="batch", digest="s", plan={})
            result = {"status": "FINISHED", "dirty": False, "attempts": 1, "restarts": 0, "ended_at": at}
            tale.say(at, "stored", job=other, parts=["results"], digest="s", attempt=1, cancel=False, result=result)
        tale.call(60, "result", "refused", GONE)
        return [v.invariant for v in check(tale.until(61).events, bounds=Bounds(results=2)) if v.job == JOB]

    assert told([20, 30], gone=40) == []
    assert set(told([20], gone=40)) >= {"I1", "I5"}
    assert "I5" in told([20, 50], gone=40)
