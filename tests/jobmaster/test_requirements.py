"""What a job asks of the worker that it is put on, and what the worker of this machine offers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from firesteel.config import Configuration, load_configuration
from firesteel.config.sections import PlacementStrategy
from firesteel.engines.record import EngineSpec
from firesteel.errors import InvalidConfigError
from firesteel.jobgraph import JobGraph, parse_graph
from firesteel.jobmaster.requirements import placement_of
from firesteel.resourcemanager.manager import limits_of
from firesteel.resourcemanager.offers import ANYWHERE, Placement
from firesteel.worker.offer import local_offer


def configuration(tmp_path: Path, **options: str) -> Configuration:
    given = {k.replace("__", ".").replace("_", "-"): v for k, v in options.items()}
    return load_configuration(overrides=given, environ={"HOME": str(tmp_path)}, cwd=tmp_path)


def graph(**placement: Any) -> JobGraph:
    return parse_graph(
        {
            "name": "a",
            "settings": {"placement": placement} if placement else {},
            "vertices": [{"kind": "script", "name": "s", "file": "a.py"}],
        }
    )


@pytest.mark.parametrize(
    ("asked", "cluster", "expected"),
    [
        ({}, "any", ANYWHERE),
        ({"labels": {"zone": "a"}}, "any", Placement(labels=frozenset({("zone", "a")}))),
        ({"sandbox": "landlock"}, "any", Placement(sandboxes=frozenset({"landlock"}))),
        ({}, "landlock", Placement(sandboxes=frozenset({"landlock"}))),
        ({"sandbox": "landlock"}, "landlock", Placement(sandboxes=frozenset({"landlock"}))),
        ({"sandbox": "any"}, "user", Placement(sandboxes=frozenset({"user"}))),
        ({"sandbox": "user"}, "landlock", Placement(sandboxes=frozenset({"landlock", "user"}))),
    ],
)
def test_placement_is_what_the_job_and_the_cluster_ask_for(
    tmp_path: Path, asked: dict[str, Any], cluster: str, expected: Placement
) -> None:
    assert placement_of(graph(**asked), configuration(tmp_path, worker__required_sandbox=cluster)) == expected


def test_offer_of_this_machine(tmp_path: Path) -> None:
    spec = EngineSpec("local[1]")
    made = local_offer(
        configuration(
            tmp_path,
            worker__name="rack-7",
            worker__labels="zone=a,disk=ssd",
            engine__max="3",
            engine__max_cores="2",
            engine__max_memory="3g",
            security__sandbox="off",
        ),
        spec,
        "w0123",
    )
    assert (made.worker, made.name, made.max_engines, made.max_cores, made.max_memory) == (
        "w0123",
        "rack-7",
        3,
        2,
        "3g",
    )
    assert made.labels == frozenset({("zone", "a"), ("disk", "ssd")})
    assert (made.sandbox, made.accepting) == ("", True)
    assert local_offer(configuration(tmp_path), EngineSpec("local[4096]"), "w").max_cores == 4096


def test_strategy_is_an_option(tmp_path: Path) -> None:
    spec = EngineSpec("local[1]")
    assert not limits_of(configuration(tmp_path), spec).spread
    assert limits_of(configuration(tmp_path, engine__placement=PlacementStrategy.SPREAD), spec).spread


def test_wrong_labels_are_told(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfigError, match=r"worker\.labels.*zone.*write name=value"):
        configuration(tmp_path, worker__labels="zone")
