"""Which node holds what. Pure."""

from __future__ import annotations

import pytest

from firesteel.errors import InvalidConfigError, StoreBrokenError
from firesteel.ha.zookeeper.layout import (
    FORMAT,
    EpochHolder,
    Layout,
    Published,
    decode_cluster,
    encode_cluster,
    in_order,
)

LAYOUT = Layout.of("/firesteel", "c")


@pytest.mark.parametrize("path", ["a", "a/b", "a/b/c", "graphs/-", "a/..b", "...", "a/...", ".hidden/x", "A-Z_0.9/z"])
def test_each_path_has_a_node_of_its_own_and_comes_back(path: str) -> None:
    node = LAYOUT.node(path)
    directory, _, name = node.rpartition("/")
    assert directory == LAYOUT.directory(path)
    assert LAYOUT.path(directory, name) == path


def test_no_two_paths_share_a_node() -> None:
    paths = ["a", "a/a", "a/b", "a/b/c", "a.b", "a/b.c", "a-b", "b", "b/a"]
    assert len({LAYOUT.node(path) for path in paths}) == len(paths)


@pytest.mark.parametrize(
    ("prefix", "directory", "begin"), [("graphs", "graphs", ""), ("a/b", "a", "b:"), ("a/b/c", "a", "b:c:")]
)
def test_one_directory_has_all_below_a_prefix(prefix: str, directory: str, begin: str) -> None:
    assert LAYOUT.below(prefix) == (f"/firesteel/c/state/{directory}", begin)
    name = LAYOUT.node(f"{prefix}/x").rpartition("/")[2]
    assert name.startswith(begin)


@pytest.mark.parametrize("name", ["a b", "ä", "a::b", ":", "a:", ":a", "..", "a:.", "%"])
def test_nodes_that_are_none_of_ours_have_no_path(name: str) -> None:
    assert LAYOUT.path("/firesteel/c/state/graphs", name) is None


@pytest.mark.parametrize("cluster_id", ["..", ".", "a/b", "a b", "ü", "%", "\x00", "zookeeper", "a.b"])
def test_any_cluster_id_is_one_node_below_the_root(cluster_id: str) -> None:
    path = Layout.of("/base/of", cluster_id).cluster
    assert path.startswith("/base/of/")
    name = path.removeprefix("/base/of/")
    assert "/" not in name
    assert name not in ("", ".", "..")
    assert name.isascii()
    assert name.isprintable()


def test_cluster_ids_that_differ_have_nodes_that_differ() -> None:
    ids = ["a/b", "a%2Fb", "a", ".", "..", "%2E", "%2E%2E", "A"]
    assert len({Layout.of("/", each).cluster for each in ids}) == len(ids)


@pytest.mark.parametrize("root", ["", "firesteel", "/a//b", "/a/../b", "/.", "/a\x00", "//"])
def test_root_that_is_no_path_is_refused(root: str) -> None:
    with pytest.raises(InvalidConfigError, match=r"path\.root"):
        Layout.of(root, "c")


def test_parents_of_the_cluster() -> None:
    assert Layout.of("/a/b", "c").parents == ["/a", "/a/b"]
    assert Layout.of("/a/b/", "c").cluster == "/a/b/c"
    assert Layout.of("/", "c").parents == []
    with pytest.raises(InvalidConfigError, match="cluster-id"):
        Layout.of("/", "")


def test_contenders_in_the_order_in_which_they_came() -> None:
    names = ["latch-ff-0000000002", "latch-aa-0000000010", "latch-bb-0000000001", "somebody", "x-1"]
    assert in_order(names) == ["latch-bb-0000000001", "latch-ff-0000000002", "latch-aa-0000000010"]


def test_cluster_of_a_newer_format_and_what_is_no_cluster_are_refused() -> None:
    assert decode_cluster(LAYOUT, encode_cluster("x")) == "x"
    assert decode_cluster(LAYOUT, b'{"format": 1, "instance": "x", "new": 1}') == "x"
    with pytest.raises(StoreBrokenError, match=f"format {FORMAT + 1}"):
        decode_cluster(LAYOUT, b'{"format": %d, "instance": "x"}' % (FORMAT + 1))
    for raw in (b"", b"[]", b"{}", b"\xff", b'{"format": "1", "instance": "x"}', b"[" * 100_000):
        with pytest.raises(StoreBrokenError, match="not a Firesteel cluster"):
            decode_cluster(LAYOUT, raw)


@pytest.mark.parametrize(
    "raw", [b"", b"x", b"[]", b"{}", b'{"epoch": "1", "address": 2, "latch": null}', b"[" * 100_000]
)
def test_damaged_notes_say_that_nobody_leads(raw: bytes) -> None:
    assert Published.decode(raw) == Published(0, "")
    assert EpochHolder.decode(raw).latch in ("", "None")


def test_notes_come_back() -> None:
    assert Published.decode(Published(3, "http://x").encode()) == Published(3, "http://x")
    assert EpochHolder.decode(EpochHolder("l", "c").encode()) == EpochHolder("l", "c")
