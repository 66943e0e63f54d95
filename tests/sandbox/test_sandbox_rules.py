"""What is granted, computed from listings that the tests make up."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firesteel.sandbox.owners import below, is_owner_directory, owner_directory
from firesteel.sandbox.rules import LIST, READ, WRITE, PathAccess, Sandbox, grants

TREE = {
    "/": ["home", "usr", "var"],
    "/home": ["ann", "bob"],
    "/home/ann": ["data", ".local", "notes.txt"],
    "/home/ann/.local": ["share", "state"],
    "/home/ann/.local/state": ["firesteel", "other"],
    "/home/ann/.local/state/firesteel": ["cluster.db", "clusters"],
}


def listing(tree: dict[str, list[str]] = TREE) -> Callable[[str], Iterable[str]]:
    return lambda path: tree.get(path, [])


def allows(granted: list[PathAccess], path: str, access: int) -> bool:
    """As the kernel decides it: any grant above will do."""
    return any(
        (path == g.path or path.startswith(f"{g.path.rstrip('/')}/")) and g.access & access == access for g in granted
    )


def test_everything_beside_the_way_to_what_is_hidden_is_granted_and_nothing_beneath_it() -> None:
    sandbox = Sandbox(write=("/",), hidden=("/home/ann/.local/state/firesteel",))
    assert {g.path for g in grants(sandbox, listing())} == {
        "/usr",
        "/var",
        "/home/bob",
        "/home/ann/data",
        "/home/ann/notes.txt",
        "/home/ann/.local/share",
        "/home/ann/.local/state/other",
    }


def test_directories_on_the_way_can_be_listed_where_names_are_no_secret() -> None:
    sandbox = Sandbox(write=("/",), hidden=("/home/ann/.local/state/firesteel",), names=True)
    listed = {g.path for g in grants(sandbox, listing()) if g.access == LIST}
    assert listed == {"/", "/home", "/home/ann", "/home/ann/.local", "/home/ann/.local/state"}


def test_what_is_own_is_granted_within_what_is_hidden() -> None:
    hidden = "/home/ann/.local/state/firesteel"
    sandbox = Sandbox(read=("/",), hidden=(hidden,), own=(f"{hidden}/jobs/1",), shown=(f"{hidden}/bells",))
    made = list(grants(sandbox, listing()))
    assert allows(made, f"{hidden}/jobs/1/out", WRITE)
    assert allows(made, f"{hidden}/bells/7", READ)
    assert not allows(made, f"{hidden}/bells/7", WRITE)
    assert not allows(made, f"{hidden}/cluster.db", LIST)


@pytest.mark.parametrize("root", ["/home/ann/.local/state/firesteel", "/home/ann/.local/state/firesteel/clusters"])
def test_a_root_that_is_hidden_or_beneath_it_is_not_granted(root: str) -> None:
    hidden = ("/home/ann/.local/state/firesteel",)
    assert not list(grants(Sandbox(read=(root,), write=(root,), hidden=hidden), listing()))


def test_a_name_that_only_begins_like_a_hidden_one_is_granted() -> None:
    tree = {"/": ["data", "data2"]}
    assert list(grants(Sandbox(read=("/",), hidden=("/data",)), listing(tree))) == [PathAccess("/data2", READ)]


NAMES = st.sampled_from(["a", "b", "ab"])
PATHS = st.lists(NAMES, min_size=1, max_size=4).map(lambda parts: "/" + "/".join(parts))


@given(
    read=st.lists(PATHS | st.just("/"), max_size=3),
    write=st.lists(PATHS | st.just("/"), max_size=3),
    hidden=st.lists(PATHS, min_size=1, max_size=3),
    names=st.booleans(),
)
def test_nothing_that_is_hidden_can_be_read_or_written_whatever_else_is_granted(
    read: list[str], write: list[str], hidden: list[str], names: bool
) -> None:
    sandbox = Sandbox(tuple(read), tuple(write), tuple(hidden), names=names)
    made = list(grants(sandbox, lambda _: ["a", "b", "ab"]))
    for path in hidden:
        assert not allows(made, f"{path}/secret", READ)
        assert not allows(made, f"{path}/secret", WRITE)


@given(write=PATHS, hidden=st.lists(PATHS, max_size=3), wanted=PATHS)
def test_what_is_beneath_a_root_and_not_hidden_or_on_the_way_is_granted(
    write: str, hidden: list[str], wanted: str
) -> None:
    def beneath(path: str, root: str) -> bool:
        return path == root or path.startswith(f"{root}/")

    made = list(grants(Sandbox(write=(write,), hidden=tuple(hidden)), lambda _: ["a", "b", "ab"]))
    free = not any(beneath(wanted, h) or beneath(h, wanted) for h in hidden)
    assert allows(made, wanted, WRITE) == (beneath(wanted, write) and free)


def test_a_sandbox_survives_its_way_over_a_socket() -> None:
    sandbox = Sandbox(("/r",), ("/w",), ("/h",), ("/s",), ("/o",), names=True)
    assert Sandbox.from_json(sandbox.to_json()) == sandbox


@pytest.mark.parametrize("owner", ["alice", "Team A", "../../etc", "ünï", "a" * 500, "-", "root\0x", "A/B"])
def test_the_directory_of_an_owner_is_one_plain_name(owner: str) -> None:
    name = owner_directory(owner)
    assert is_owner_directory(name)
    assert "/" not in name
    assert ".." not in name
    assert below("/c/", owner) == f"/c/{name}"


def test_owners_who_read_alike_have_directories_of_their_own() -> None:
    assert owner_directory("Team A") != owner_directory("team-a")
