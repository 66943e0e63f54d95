"""What is slow to check, or never ends to be read: S25, S42, S43. One caller's requests keep nobody else waiting."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.attacks.attacked_node import Answer, AttackedNode, People
from tests.attacks.graphs import BATCH, STREAM, changed

pytestmark = pytest.mark.xdist_group("attacks")


def submit_meanwhile(node: AttackedNode, people: People, graphs: list[dict[str, object]]) -> tuple[list[Answer], float]:
    """What alice is told for her graphs, all sent at once, and the longest that bob waited for a job of his meanwhile."""

    def send(graph: dict[str, object]) -> Answer:
        with node.caller(people.alice.token) as sending:
            return sending.post("/jobs", {"graph": graph})

    longest = 0.0
    with ThreadPoolExecutor(len(graphs)) as pool:
        sent = [pool.submit(send, graph) for graph in graphs]
        while True:
            over = all(s.done() for s in sent)
            begun = time.monotonic()
            assert people.bob.post("/jobs", {"graph": BATCH}).status == 202
            longest = max(longest, time.monotonic() - begun)
            if over:
                return [s.result() for s in sent], longest
            time.sleep(0.1)


@pytest.mark.slow
def test_a_manifest_that_is_a_pipe_or_a_giant_keeps_nobody_waiting(
    node: AttackedNode, people: People, tmp_path: Path
) -> None:
    pipe, giant = tmp_path / "pipe", tmp_path / "giant"
    pipe.mkdir()
    giant.mkdir()
    os.mkfifo(pipe / "_savepoint.json")
    with (giant / "_savepoint.json").open("wb") as file:
        file.truncate(3 << 30)
    graphs = [changed(STREAM, "settings", to={"restore": {"path": str(place)}}) for place in (pipe, pipe, giant)]
    answers, longest = submit_meanwhile(node, people, graphs)
    assert [a.status for a in answers] == [400, 400, 400]
    assert longest < 5
    resident = int(Path(f"/proc/{node.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    assert resident < 800 << 20


def test_graphs_that_are_slow_to_check_keep_nobody_waiting(node: AttackedNode, people: People) -> None:
    tables = ", ".join(f"c{i} AS (SELECT 1)" for i in range(900))
    references = ", ".join(f"c{i % 900} t{i}" for i in range(6_000))
    query = f"WITH {tables} SELECT * FROM {references}"
    unions = " UNION ".join(["SELECT id FROM a"] * 9_000)
    slow = [changed(BATCH, "vertices", 1, "query", to=text) for text in (query, unions, unions + " ")]
    answers, longest = submit_meanwhile(node, people, slow)
    assert {a.status for a in answers} <= {202, 400}
    assert longest < 5
