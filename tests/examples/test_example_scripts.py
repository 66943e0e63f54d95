"""The example programs, which know nothing of Firesteel, run on it as they are."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from firesteel.status import JobStatus

if TYPE_CHECKING:
    from tests.conftest import Cluster, Run
    from tests.examples.example_files import EXAMPLES, module, read_json
else:
    from example_files import EXAMPLES, module, read_json

pytestmark = [pytest.mark.spark, pytest.mark.slow]

WORDCOUNT = EXAMPLES / "script_wordcount"
RDD = EXAMPLES / "script_rdd"


def _finished(run: Run, api: str) -> None:
    assert run.result.status is JobStatus.FINISHED, f"{run.result.failure}\n{run.stderr}"
    assert [e["api"] for e in run.events if e["type"] == "phase" and e["phase"] == "running"] == [api]


@pytest.mark.parametrize(("top", "min_length"), [(10, 1), (3, 5)])
def test_wordcount_on_connect(cluster: Cluster, tmp_path: Path, top: int, min_length: int) -> None:
    args = ("--output", str(tmp_path), "--top", str(top), "--min-length", str(min_length))
    run = cluster.run(WORDCOUNT / "wordcount.py", args=args)
    _finished(run, "connect")
    expected = module("script_wordcount", "expected").top_words(WORDCOUNT / "data", top, min_length)
    assert len(expected) == top
    assert [tuple(line.split()) for line in run.stdout.splitlines()] == [(str(n), word) for word, n in expected]
    assert [(r["word"], r["count"]) for r in read_json(sorted(tmp_path.glob("*.json")))] == expected


def test_inverted_index_on_a_classic_driver(cluster: Cluster, tmp_path: Path) -> None:
    run = cluster.run(RDD / "inverted_index.py", args=("--output", str(tmp_path), "--word", "ember"))
    _finished(run, "classic")
    expected = module("script_rdd", "expected")
    index = expected.index(RDD / "data")
    assert {r["word"]: r["documents"] for r in read_json(sorted(tmp_path.glob("*.json")))} == index
    assert run.stdout.splitlines() == [
        f"{len(index)} words in 12 documents",
        f"{expected.words_read(RDD / 'data')} words read",
        f"ember: {', '.join(index['ember'])}",
    ]
