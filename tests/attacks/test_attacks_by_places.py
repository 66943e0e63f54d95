"""Places that a caller names and the cluster would read or write (S39, S42): its own files, other processes, other hosts."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from tests.attacks.attacked_node import AttackedNode, People
from tests.attacks.graphs import BATCH, STREAM, changed
from tests.attacks.test_attacks_by_settings import refused

from firesteel.errors import InvalidRequestError
from firesteel.savepoint.naming import check_directory

PLACES = (
    "{data}/clusters/default/rest.json",
    "file:{data}/clusters",
    "file://localhost{data}",
    "/{data}/../{name}/clusters",
    "{parent}/*/clusters/default/store.db",
    "{parent}/{{x,{name}}}/clusters",
    "{parent}",
    "/",
    "/proc/self/environ",
    "/proc/*/environ",
    "{data}/checkpoints",
)


def spelled(node: AttackedNode, place: str) -> str:
    return place.format(data=node.directory, parent=node.directory.parent, name=node.directory.name)


@pytest.mark.parametrize("place", PLACES)
def test_sources_and_sinks_reach_none_of_the_clusters_own_files(node: AttackedNode, people: People, place: str) -> None:
    """S39: the token of the node's owner, other owners' state, secrets of other processes."""
    path = spelled(node, place)
    refused(people.alice, changed(BATCH, "vertices", 0, "path", to=path), "vertex 'a', field 'path'")
    refused(people.alice, changed(BATCH, "vertices", 2, "path", to=path), "vertex 'o', field 'path'")
    by_option = {**BATCH["vertices"][0], "options": {"PATH": path}}
    del by_option["path"]
    refused(people.alice, changed(BATCH, "vertices", 0, to=by_option), "vertex 'a'")


def test_no_option_of_a_format_names_them_either(node: AttackedNode, people: People) -> None:
    """S39"""
    secret = f"{node.directory}/clusters/default/store.db"
    for name, value in (("paths", f'["{secret}"]'), ("url", f"jdbc:sqlite:{secret}"), ("header", f"x{secret}")):
        graph = changed(BATCH, "vertices", 0, "options", to={name: value})
        refused(people.alice, graph, f"field 'options.{name}'")


def test_admins_read_what_they_like(node: AttackedNode, people: People) -> None:
    """The control run of the above."""
    path = f"{node.directory}/clusters/default/audit.log"
    assert people.root.post("/jobs", {"graph": changed(BATCH, "vertices", 0, "path", to=path)}).status == 202


def test_where_the_clusters_files_are_is_for_admins(node: AttackedNode, people: People) -> None:
    """S39: a path is the first thing that one needs."""
    job = people.alice.submit(BATCH)
    for path in ("/jobmanager/config", f"/jobs/{job}/jobmanager/config", f"/applications/{job}/jobmanager/config"):
        told = people.root.get(path)
        assert {e["key"]: e["value"] for e in told.json()}["data.dir"] == str(node.directory)
        for caller in (people.alice, people.watcher):
            answer = caller.get(path)
            assert answer.status == 200
            assert str(node.directory) not in answer.text
            keys = {entry["key"] for entry in answer.json()}
            assert "engine.slots" in keys
            assert not keys & {"data.dir", "security.rest.tokens-file", "state.checkpoints.dir"}


def test_the_working_directory_of_a_driver_is_for_admins(node: AttackedNode, people: People) -> None:
    """S39"""
    graph = changed(BATCH, "settings", to={"directory": str(node.directory)})
    refused(people.alice, graph, "settings.directory")
    assert people.root.post("/jobs", {"graph": graph}).status == 202


@pytest.mark.parametrize(
    "place",
    [
        "/etc/firesteel-planted",
        "{data}/clusters/default/jobs",
        "{data}/savepoints/../clusters",
        "file:///tmp/firesteel-planted",
        "memory://gone",
        "webhdfs://127.0.0.1:{port}/x",
        "s3a://bucket/x",
    ],
)
def test_the_node_writes_and_reads_savepoints_where_an_admin_said_and_nowhere_else(
    node: AttackedNode, people: People, place: str
) -> None:
    """S42: neither is a directory made, nor a host asked."""
    stream = people.alice.submit(STREAM)
    with socket.create_server(("127.0.0.1", 0)) as bait:
        target = place.format(data=node.directory, port=bait.getsockname()[1])
        for path, body in (
            (f"/jobs/{stream}/savepoints", {"target-directory": target}),
            (f"/jobs/{stream}/stop", {"targetDirectory": target}),
        ):
            answer = people.alice.post(path, body)
            assert answer.status == 400, answer
            assert "security.savepoint-directories.allowed" in answer.errors[0]
        restored = changed(STREAM, "settings", "restore", to={"path": target})
        refused(people.alice, restored, "settings.restore.path")
        bait.settimeout(0.2)
        with pytest.raises(TimeoutError):
            bait.accept()
    assert not Path("/etc/firesteel-planted").exists()


@pytest.mark.parametrize("path", ["memory://x", "memory:///x/y"])
def test_nobody_keeps_a_savepoint_in_the_memory_of_the_node(path: str) -> None:
    """S42, I14"""
    with pytest.raises(InvalidRequestError, match="cannot be kept"):
        check_directory(path, "target-directory")
