"""A directory of a cluster knows which store it belongs to, and whoever names another one is told the difference."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from firesteel.config import Configuration, load_configuration
from firesteel.errors import InvalidConfigError
from firesteel.ha.identity import FILE, check, claim, identity_of

CANARY = "canary-9d1f"


def configured(tmp_path: Path, **options: str) -> Configuration:
    keys = {k: k.replace("__", ".").replace("_", "-") for k in options}
    named = {k if k.startswith("kubernetes.") else f"high-availability.{k}": options[o] for o, k in keys.items()}
    return load_configuration(overrides={"data.dir": str(tmp_path / "data"), **named}, environ={}, cwd=tmp_path)


ZOOKEEPER = {"type": "zookeeper", "zookeeper__quorum": "zk1:2181,zk2:2181"}
CASES: dict[str, tuple[dict[str, str], dict[str, str], str]] = {
    "zookeeper, then left out": (ZOOKEEPER, {}, "high-availability.type"),
    "a database, then left out": ({"sql__url": "postgresql://u@db/x"}, {}, "high-availability.sql.url"),
    "another database": ({"sql__url": "postgresql://u@db/x"}, {"sql__url": "postgresql://u@db/y"}, "sql.url"),
    "another host": ({"sql__url": "postgresql://u@db/x"}, {"sql__url": "postgresql://u@other/x"}, "sql.url"),
    "another file": ({}, {"sql__url": "sqlite:////elsewhere/cluster.db"}, "high-availability.sql.url"),
    "other servers": (ZOOKEEPER, {**ZOOKEEPER, "zookeeper__quorum": "zk9:2181"}, "zookeeper.quorum"),
    "another root": (ZOOKEEPER, {**ZOOKEEPER, "zookeeper__path__root": "/other"}, "zookeeper.path.root"),
    "another namespace": (
        {"type": "kubernetes", "kubernetes__namespace": "a"},
        {"type": "kubernetes", "kubernetes__namespace": "b"},
        "kubernetes.namespace",
    ),
}


@pytest.mark.parametrize(("one", "other", "named"), CASES.values(), ids=CASES.keys())
def test_other_store_is_refused_and_the_difference_named(
    one: dict[str, str], other: dict[str, str], named: str, tmp_path: Path
) -> None:
    claim(tmp_path, configured(tmp_path, **one))
    check(tmp_path, configured(tmp_path, **one))
    for act in (check, claim):
        with pytest.raises(InvalidConfigError) as caught:
            act(tmp_path, configured(tmp_path, **other))
        assert named in str(caught.value)
        assert str(tmp_path / FILE) in str(caught.value), "what to do when it is meant"
    check(tmp_path, configured(tmp_path, **one))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            {"sql__url": f"postgresql://u:{CANARY}@db/x"},
            {"sql__url": "postgresql+psycopg://v:new@db/x?connect_timeout=3"},
        ),
        (ZOOKEEPER, {**ZOOKEEPER, "zookeeper__quorum": "zk3:2181,zk2:2181"}),
        ({"lease_duration": "5 s"}, {}),
    ],
    ids=["another password", "a server more and one less", "what says nothing of the store"],
)
def test_same_store_told_differently_is_the_same(one: dict[str, str], other: dict[str, str], tmp_path: Path) -> None:
    claim(tmp_path, configured(tmp_path, **one))
    claim(tmp_path, configured(tmp_path, **other))


def test_secrets_are_not_written(tmp_path: Path) -> None:
    """S27"""
    url = f"postgresql://{CANARY}:{CANARY}@db:5432/x?password={CANARY}&host=db2"
    claim(tmp_path, configured(tmp_path, sql__url=url))
    text = (tmp_path / FILE).read_text()
    assert CANARY not in text
    assert json.loads(text)["high-availability.sql.url"] == "postgresql://db:5432,db2/x"
    assert not (tmp_path / FILE).stat().st_mode & 0o077


def test_own_database_named_in_full_is_the_own_database(tmp_path: Path) -> None:
    claim(tmp_path, configured(tmp_path))
    check(tmp_path, configured(tmp_path, sql__url=f"sqlite:///{tmp_path / 'data' / 'cluster.db'}"))


def test_store_in_memory_is_no_more_when_its_process_is(tmp_path: Path) -> None:
    memory = configured(tmp_path, type="none")
    claim(tmp_path, memory)
    with pytest.raises(InvalidConfigError):
        check(tmp_path, configured(tmp_path))
    ended = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    (tmp_path / FILE).write_text(json.dumps({"high-availability.type": "none", "node": f"{int(ended.stdout)} 1"}))
    claim(tmp_path, configured(tmp_path))
    assert json.loads((tmp_path / FILE).read_text()) == identity_of(configured(tmp_path))


def test_nothing_noted_or_not_readable_refuses_nobody(tmp_path: Path) -> None:
    check(tmp_path, configured(tmp_path))
    (tmp_path / FILE).write_text("{")
    check(tmp_path, configured(tmp_path))
    claim(tmp_path, configured(tmp_path))
    assert os.listdir(tmp_path) == [FILE]
