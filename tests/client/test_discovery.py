"""Finding the cluster of this machine."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.client.fake_cluster import FakeCluster, Node
from tests.support.local_doors import handing_out

from firesteel.client import ClusterUnreachableError, connect, connect_async, find_local, find_nodes
from firesteel.client.discovery import rest_file
from firesteel.config import Configuration, load_configuration
from firesteel.fs.files import private_dir, write_json
from firesteel.processes import ProcessIdentity

WHO = {"name": "me", "role": "admin", "owner": "*"}


def configuration(tmp_path: Path, **overrides: str) -> Configuration:
    given = {"data.dir": str(tmp_path), **{k.replace("_", "."): v for k, v in overrides.items()}}
    return load_configuration(environ={"HOME": str(tmp_path)}, overrides=given, cwd=tmp_path)


def me() -> ProcessIdentity:
    found = ProcessIdentity.of(os.getpid())
    assert found is not None
    return found


def announce(
    configuration: Configuration, address: str, process: ProcessIdentity, token: str | None = "local", **more: Any
) -> Path:
    file = rest_file(configuration)
    private_dir(file.parent)
    door = handing_out(token) if token else None
    write_json(file, {"address": address, "socket": door, "pid": process.pid, "started": process.started, **more})
    return file


def test_nothing_is_there(tmp_path: Path) -> None:
    assert find_local(configuration(tmp_path)) is None


def test_node_that_serves_is_found(tmp_path: Path) -> None:
    known = configuration(tmp_path)
    announce(known, "http://127.0.0.1:40123", me(), settings={"a": "b"})
    found = find_local(known)
    assert found is not None
    assert (found.address, found.token, found.process) == ("http://127.0.0.1:40123", "local", me())


def test_node_that_has_ended_is_not_found(tmp_path: Path) -> None:
    known = configuration(tmp_path)
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    process = ProcessIdentity.of(child.pid)
    assert process is not None
    announce(known, "http://127.0.0.1:1", process)
    assert find_local(known) is not None
    child.communicate(b"\n")
    assert find_local(known) is None


def test_pid_that_was_used_again_is_not_the_node(tmp_path: Path) -> None:
    known = configuration(tmp_path)
    announce(known, "http://127.0.0.1:1", ProcessIdentity(os.getpid(), "long ago"))
    assert find_local(known) is None


def test_clusters_of_one_data_directory_are_told_apart(tmp_path: Path) -> None:
    one, other = (
        configuration(tmp_path),
        load_configuration(
            environ={"HOME": str(tmp_path)},
            overrides={"data.dir": str(tmp_path), "high-availability.cluster-id": "other"},
            cwd=tmp_path,
        ),
    )
    announce(one, "http://127.0.0.1:1", me())
    assert find_local(one) is not None
    assert find_local(other) is None


@pytest.mark.parametrize("mode", [0o644, 0o660, 0o602])
def test_file_that_others_can_read_or_write_is_ignored(
    tmp_path: Path, mode: int, caplog: pytest.LogCaptureFixture
) -> None:
    known = configuration(tmp_path)
    announce(known, "http://127.0.0.1:1", me()).chmod(mode)
    assert find_local(known) is None
    assert "rest.json" in caplog.text


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"address": "nowhere", "pid": 1, "started": "1"}',
        '{"address": 5, "pid": 1, "started": "1"}',
    ],
)
def test_file_that_cannot_be_read_is_ignored(tmp_path: Path, content: str, caplog: pytest.LogCaptureFixture) -> None:
    known = configuration(tmp_path)
    announce(known, "http://127.0.0.1:1", me()).write_text(content)
    assert find_local(known) is None
    assert "ignoring" in caplog.text


def test_connect_to_the_local_cluster_shows_its_token(tmp_path: Path, fake: FakeCluster, node: Node) -> None:
    fake.answers["/whoami"] = WHO
    known = configuration(tmp_path)
    announce(known, node.address, me())
    with connect(known) as client:
        assert client.whoami().name == "me"
    assert fake.seen[0].headers["authorization"] == "Bearer local"


def test_connect_to_addresses_takes_the_configured_token(tmp_path: Path, fake: FakeCluster, node: Node) -> None:
    fake.answers["/whoami"] = WHO
    known = configuration(tmp_path, client_addresses=node.address, client_token="configured")
    announce(known, "http://127.0.0.1:1", me())  # a local one is there too, and not meant
    with connect(known) as client:
        client.whoami()
    assert fake.seen[0].headers["authorization"] == "Bearer configured"


def test_local_token_is_never_sent_to_configured_addresses(tmp_path: Path, fake: FakeCluster, node: Node) -> None:
    fake.answers["/whoami"] = WHO
    known = configuration(tmp_path, client_addresses=node.address)
    announce(known, "http://127.0.0.1:1", me())
    with connect(known) as client:
        client.whoami()
    assert "authorization" not in fake.seen[0].headers


def test_connect_without_any_cluster_says_how_to_start_one(tmp_path: Path) -> None:
    with pytest.raises(ClusterUnreachableError, match="firesteel cluster start"):
        connect(configuration(tmp_path))


def test_cluster_that_was_restarted_at_another_port_is_followed(tmp_path: Path, fake: FakeCluster, node: Node) -> None:
    known = configuration(tmp_path)
    fake.answers["/whoami"] = WHO
    first = Node(fake)
    announce(known, first.address, me(), token="before")
    with connect(known) as client:
        client.whoami()
        first.stop()
        announce(known, node.address, me(), token="after")
        assert client.whoami().name == "me"
        assert client.addresses == (node.address,)
    assert [s.headers["authorization"] for s in fake.seen] == ["Bearer before", "Bearer after"]


def test_port_of_a_node_that_is_gone_is_not_asked_again(tmp_path: Path, fake: FakeCluster) -> None:
    """Whoever listens there next would be shown the token."""
    known = configuration(tmp_path, client_timeout="1s")
    fake.answers["/whoami"] = WHO
    first = Node(fake)
    file = announce(known, first.address, me())
    with connect(known) as client:
        client.whoami()
        first.stop()
        file.unlink()
        with pytest.raises(ClusterUnreachableError, match="has ended"):
            client.whoami()


def announce_all(known: Configuration, *nodes: tuple[str, ProcessIdentity, str]) -> None:
    """As several nodes do; the last one came last."""
    listed = [{"address": a, "pid": p.pid, "started": p.started, "socket": handing_out(t)} for a, p, t in nodes]
    file = announce(known, *nodes[-1][:2], token=nodes[-1][2])
    write_json(file, {**listed[-1], "nodes": listed})


def test_all_nodes_of_the_machine_are_known_each_by_its_own_token(
    tmp_path: Path, fake: FakeCluster, node: Node
) -> None:
    """The one that came last dies without a word; no address was ever named, and nobody is shown another's token."""
    known = configuration(tmp_path)
    fake.answers["/whoami"] = WHO
    last = Node(fake)
    announce_all(known, (node.address, me(), "first"), (last.address, me(), "last"))
    with connect(known) as client:
        assert client.addresses == (last.address, node.address)
        client.whoami()
        last.stop()
        assert client.whoami().name == "me"
        assert client.whoami().name == "me"
        assert client.addresses == (node.address, last.address)
    assert [s.headers["authorization"] for s in fake.seen] == ["Bearer last", "Bearer first", "Bearer first"]


def test_nodes_that_are_dead_are_left_out(tmp_path: Path) -> None:
    known = configuration(tmp_path)
    dead = ProcessIdentity(me().pid, "never")
    one, two = "http://127.0.0.1:1", "http://127.0.0.1:2"
    announce_all(known, (one, me(), "a"), (two, dead, "b"))
    assert [n.address for n in find_nodes(known)] == [one]
    found = find_local(known)
    assert found is not None
    assert (found.address, found.token) == (one, "a")
    announce_all(known, (one, dead, "a"), (two, dead, "b"))
    assert find_nodes(known) == ()
    assert find_local(known) is None


def test_node_that_comes_later_is_asked_when_all_others_fail(tmp_path: Path, fake: FakeCluster, node: Node) -> None:
    known = configuration(tmp_path)
    fake.answers["/whoami"] = WHO
    first = Node(fake)
    announce_all(known, (first.address, me(), "a"))
    with connect(known) as client:
        client.whoami()
        announce_all(known, (first.address, me(), "a"), (node.address, me(), "b"))
        first.stop()
        assert client.whoami().name == "me"
        assert client.addresses[0] == node.address
    assert fake.seen[-1].headers["authorization"] == "Bearer b"


def test_configured_token_is_shown_to_all_nodes(tmp_path: Path, fake: FakeCluster, node: Node) -> None:
    known = configuration(tmp_path, client_token="configured")
    fake.answers["/whoami"] = WHO
    announce_all(known, ("http://127.0.0.1:1", me(), "a"), (node.address, me(), "b"))
    with connect(known) as client:
        client.whoami()
    assert fake.seen[0].headers["authorization"] == "Bearer configured"


def test_connect_async(tmp_path: Path, fake: FakeCluster, node: Node) -> None:
    fake.answers["/whoami"] = WHO
    known = configuration(tmp_path)
    announce(known, node.address, me())

    async def ask() -> str:
        async with connect_async(known) as client:
            return (await client.whoami()).name

    assert asyncio.run(ask()) == "me"


def test_file_is_what_a_node_would_write(tmp_path: Path) -> None:
    known = configuration(tmp_path)
    file = announce(known, "http://127.0.0.1:1", me())
    assert file == tmp_path / "clusters" / "default" / "rest.json"
    assert set(json.loads(file.read_text())) == {"address", "socket", "pid", "started"}
