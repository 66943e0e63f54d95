"""Labels on failures: useful, and never worth a job."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from importlib.metadata import EntryPoint

import pytest

from firesteel.errors import InvalidConfigError
from firesteel.failure import Failure, FailureKind
from firesteel.jobmaster import enrichers as module
from firesteel.jobmaster.enrichers import GROUP, FailureEnricher, FailureEnrichers, load_enrichers, type_label

OOM = Failure(FailureKind.OUT_OF_MEMORY, "Java heap space", vertex="orders")


def labels(*enrichers: FailureEnricher, failure: Failure = OOM) -> dict[str, str]:
    with contextlib.closing(FailureEnrichers(enrichers)) as made:
        return asyncio.run(made.labels_of(failure))


def by_vertex(failure: Failure) -> Mapping[str, str]:
    return {"vertex": failure.vertex or "", "type": "MINE"}


def broken(_: Failure) -> Mapping[str, str]:
    raise RuntimeError("a bug of the enricher's")


def odd(_: Failure) -> Mapping[str, str]:
    return {"count": 3, 7: None}  # type: ignore[dict-item]


def no_mapping(_: Failure) -> Mapping[str, str]:
    return None  # type: ignore[return-value]


@pytest.mark.parametrize("kind", list(FailureKind))
def test_every_kind_has_a_type(kind: FailureKind) -> None:
    assert labels(type_label, failure=Failure(kind, "x"))["type"]


def test_whose_fault_it_was() -> None:
    kinds = {k: labels(type_label, failure=Failure(k, "x"))["type"] for k in FailureKind}
    assert kinds[FailureKind.USER_CODE] == kinds[FailureKind.EXIT_CODE] == "USER_ERROR"
    assert kinds[FailureKind.ENGINE_LOST] == "ENGINE_LOST"
    assert kinds[FailureKind.INTERNAL] == "INTERNAL"


def test_first_enricher_has_the_key() -> None:
    assert labels(type_label, by_vertex) == {"type": "OUT_OF_MEMORY", "vertex": "orders"}
    assert labels(by_vertex, type_label)["type"] == "MINE"


@pytest.mark.parametrize("bad", [broken, no_mapping])
def test_enricher_that_fails_loses_its_own_labels_only(bad: FailureEnricher, caplog: pytest.LogCaptureFixture) -> None:
    assert labels(type_label, bad, by_vertex) == {"type": "OUT_OF_MEMORY", "vertex": "orders"}
    assert bad.__name__ in caplog.text
    assert "its labels are missing" in caplog.text


def test_labels_are_text() -> None:
    assert labels(odd) == {"count": "3", "7": "None"}


def test_enricher_runs_off_the_event_loop() -> None:
    where: list[int] = []

    def note(_: Failure) -> Mapping[str, str]:
        where.append(threading.get_ident())
        return {}

    labels(note)
    assert where
    assert where[0] != threading.get_ident()


def test_enricher_that_hangs_is_waited_for_only_so_long(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "TIMEOUT_SECONDS", 0.05)
    release = threading.Event()

    def hang(_: Failure) -> Mapping[str, str]:
        release.wait(20)
        return {"late": "yes"}

    made = FailureEnrichers((hang, by_vertex))

    async def main() -> dict[str, str]:
        try:
            return await made.labels_of(OOM)
        finally:
            began = time.monotonic()
            made.close()  # waits for nobody
            assert time.monotonic() - began < 5
            release.set()  # the process waits for its threads when it ends

    with caplog.at_level(logging.ERROR):
        assert asyncio.run(main()) == {"vertex": "orders", "type": "MINE"}
    assert "hang" in caplog.text


def test_enricher_that_exits_does_not_end_the_control_plane() -> None:
    """In a process of its own: an event loop that meets SystemExit takes everything around it with it."""
    code = """
import asyncio, sys
from firesteel.failure import Failure, FailureKind
from firesteel.jobmaster.enrichers import FailureEnrichers, type_label
enrichers = FailureEnrichers((type_label, lambda _: sys.exit(3)))
print(asyncio.run(enrichers.labels_of(Failure(FailureKind.DATA, "x"))))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "{'type': 'DATA_ERROR'}\n")


# -- finding them -----------------------------------------------------------------------------------------------------


def installed(monkeypatch: pytest.MonkeyPatch, **values: str) -> None:
    found = [EntryPoint(name, value, GROUP) for name, value in values.items()]
    monkeypatch.setattr(module, "entry_points", lambda *, group: found if group == GROUP else [])


def test_ours_is_always_there() -> None:
    assert load_enrichers(()) == (type_label,)


def test_named_ones_come_after_ours_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, a="builtins:dict", b="builtins:len", c="builtins:list")
    assert [e.__name__ for e in load_enrichers(("b", "a"))] == ["type_label", "len", "dict"]


def test_missing_ones_are_all_named_with_those_that_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, team="builtins:dict")
    with pytest.raises(InvalidConfigError) as caught:
        load_enrichers(("tema", "team", "other"))
    assert [p.field for p in caught.value.problems] == ["jobmanager.failure-enrichers"] * 2
    said = str(caught.value)
    assert "no failure enricher 'tema' is installed (installed: team)" in said
    assert "'other'" in said
    assert GROUP in said


def test_enricher_that_cannot_be_imported_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, team="no_such_module:label")
    with pytest.raises(InvalidConfigError, match=r"jobmanager\.failure-enrichers.*team"):
        load_enrichers(("team",))
