"""rest.json: several nodes of one machine, coming and going in any order."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.local_doors import handing_out

from firesteel.client.discovery import find_nodes
from firesteel.config import Configuration, load_configuration
from firesteel.fs.files import read_json, write_json
from firesteel.layout import REST_FILE
from firesteel.processes import ProcessIdentity
from firesteel.rest.announcement import Announcement


def announced(directory: Path, port: int, **more: Any) -> Announcement:
    made = Announcement(directory, {"address": f"http://127.0.0.1:{port}", "socket": handing_out(f"t{port}"), **more})
    made.write()
    return made


def configuration(tmp_path: Path) -> tuple[Configuration, Path]:
    known = load_configuration(overrides={"data.dir": str(tmp_path)}, environ={"HOME": str(tmp_path)})
    directory = tmp_path / "clusters" / "default"
    directory.mkdir(parents=True)
    return known, directory


def ports(known: Configuration) -> list[int]:
    return [int(n.address.rpartition(":")[2]) for n in find_nodes(known)]


def test_all_nodes_are_found_the_last_one_first_each_with_its_token(tmp_path: Path) -> None:
    known, directory = configuration(tmp_path)
    one, two, three = (announced(directory, port, woken=port == 3) for port in (1, 2, 3))
    assert [(n.address[-1], n.token) for n in find_nodes(known)] == [("3", "t3"), ("2", "t2"), ("1", "t1")]
    assert read_json(directory / REST_FILE)["woken"] is True
    assert len(one.others()) == 2
    three.take_back()
    assert ports(known) == [2, 1]
    assert read_json(directory / REST_FILE)["woken"] is False
    one.take_back()
    one.take_back()
    assert ports(known) == [2]
    assert two.others() == []
    two.take_back()
    assert not (directory / REST_FILE).exists()
    assert (directory / "rest.lock").exists()


def test_file_is_private(tmp_path: Path) -> None:
    _, directory = configuration(tmp_path)
    announced(directory, 1)
    assert (directory / REST_FILE).stat().st_mode & 0o077 == 0


def test_node_that_was_killed_is_not_found_and_is_taken_out_by_the_others(tmp_path: Path) -> None:
    known, directory = configuration(tmp_path)
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        identity = ProcessIdentity.of(child.pid)
        assert identity is not None
        dead = {"address": "http://127.0.0.1:9", "token": "t9", "pid": identity.pid, "started": identity.started}
        one = announced(directory, 1)
        told = read_json(directory / REST_FILE)
        write_json(directory / REST_FILE, {**dead, "nodes": [*told["nodes"], dead]})
        assert ports(known) == [9, 1]
        assert len(one.others()) == 1
    finally:
        child.kill()
        child.wait()
    assert ports(known) == [1]
    one._tidy()
    told = read_json(directory / REST_FILE)
    assert told["address"] == "http://127.0.0.1:1"
    assert len(told["nodes"]) == 1


def test_node_that_is_missing_or_meets_a_broken_file_writes_itself_in(tmp_path: Path) -> None:
    known, directory = configuration(tmp_path)
    one = announced(directory, 1)
    for content in ("", "[]", "{", '{"nodes": 5}'):
        (directory / REST_FILE).write_text(content)
        one._tidy()
        assert ports(known) == [1]
    (directory / REST_FILE).unlink()
    one._tidy()
    assert ports(known) == [1]
    one.take_back()
    one._tidy()
    assert ports(known) == [], "one that has ended does not come back"


def test_node_of_an_earlier_version_keeps_its_place(tmp_path: Path) -> None:
    """It wrote a file without a list."""
    known, directory = configuration(tmp_path)
    me = ProcessIdentity.of(os.getpid())
    assert me is not None
    write_json(
        directory / REST_FILE, {"address": "http://127.0.0.1:7", "token": "t7", "pid": me.pid, "started": me.started}
    )
    assert ports(known) == [7]
    one = announced(directory, 1)
    assert ports(known) == [1, 7]
    one.take_back()
    assert ports(known) == [7]


def test_nodes_of_another_host_are_left_alone_and_not_taken_for_neighbours(tmp_path: Path) -> None:
    """With a shared data directory; each host would else take the others' nodes out, again and again."""
    known, directory = configuration(tmp_path)
    far = {"address": "http://10.0.0.2:1", "token": "t", "pid": 1, "started": "never", "host": "far/0123/4567"}
    write_json(directory / REST_FILE, {**far, "nodes": [far]})
    one = announced(directory, 1)
    assert ports(known) == [1]
    assert one.others() == []
    told = read_json(directory / REST_FILE)
    assert [n["address"] for n in told["nodes"]] == ["http://10.0.0.2:1", "http://127.0.0.1:1"]
    write_json(directory / REST_FILE, {**far, "nodes": told["nodes"]})
    one._tidy()
    assert read_json(directory / REST_FILE)["address"] == "http://10.0.0.2:1"
    assert ports(known) == [1]
    one.take_back()
    assert ports(known) == []
    assert [n["address"] for n in read_json(directory / REST_FILE)["nodes"]] == ["http://10.0.0.2:1"]
