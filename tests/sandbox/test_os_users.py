"""Owners as users of the operating system: who they are, what they become, and which modes keep others out."""

from __future__ import annotations

import json
import os
import pwd
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from firesteel.sandbox import landlock
from firesteel.sandbox.policy import SandboxPolicy
from firesteel.sandbox.rules import Sandbox
from firesteel.sandbox.thread import confined
from firesteel.sandbox.users import (
    NoUserError,
    OsUser,
    close_entries,
    closed_way,
    lend,
    open_ways,
    user_of,
)

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")

USERS = {
    "alice": ("alice", 1001, 1001, "/home/alice"),
    "etl": ("etl", 998, 998, "/var/lib/etl"),
    "root": ("root", 0, 0, "/root"),
}
NOBODY = pwd.getpwnam("nobody")
SOMEBODY = OsUser(NOBODY.pw_name, NOBODY.pw_uid, NOBODY.pw_gid, NOBODY.pw_dir)


def lookup(name: str) -> pwd.struct_passwd:
    name, uid, gid, home = USERS[name]
    return pwd.struct_passwd((name, "x", uid, gid, "", home, "/bin/sh"))


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def in_a_child(function: Callable[[], Any]) -> Any:
    """What `function` returns in a process of its own."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            answer = json.dumps(function())
        except BaseException as error:
            answer = json.dumps(repr(error))
        os.write(writing, answer.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answers:
        text = answers.read()
    os.waitpid(pid, 0)
    return json.loads(text)


@pytest.mark.parametrize(
    ("owner", "mapped", "name"),
    [
        ("alice", {}, "alice"),
        ("alice@example.com", {"alice@example.com": "alice"}, "alice"),
        ("x", {"x": "etl"}, "etl"),
    ],
)
def test_an_owner_is_the_user_of_its_name_or_the_one_that_is_mapped(
    owner: str, mapped: dict[str, str], name: str
) -> None:
    assert user_of(owner, mapped, lookup) == OsUser(*USERS[name])


@pytest.mark.parametrize(
    ("owner", "mapped", "why"),
    [
        ("carol", {}, "useradd --create-home carol"),
        ("carol", {"carol": "gone"}, "useradd --create-home gone"),
        ("etl", {}, "a system account"),
        ("root", {}, "which is root"),
        ("carol", {"carol": "root"}, "which is root"),
        ("a\0b", {}, "has no user"),
    ],
)
def test_an_owner_without_a_user_is_refused_with_what_to_do(owner: str, mapped: dict[str, str], why: str) -> None:
    def strict(name: str) -> pwd.struct_passwd:
        return pwd.getpwnam(name) if "\0" in name else lookup(name)

    with pytest.raises(NoUserError, match=why) as refused:
        user_of(owner, mapped, strict)
    assert "security.sandbox.users" in str(refused.value)


def test_the_nodes_own_user_stays_who_it_is() -> None:
    policy = SandboxPolicy("root", (), (), users=())
    assert policy.os_user("root") is None
    assert policy.files("root").user is None


def test_ways_can_be_entered_and_what_lies_beside_them_not_be_read(tmp_path: Path) -> None:
    root = tmp_path / "data"
    (root / "jobs" / "1").mkdir(parents=True)
    root.chmod(0o700)
    (root / "cluster.db").touch(mode=0o644)
    (root / "jobs" / "log").touch(mode=0o644)
    (root / "other").mkdir(mode=0o755)
    for _ in range(2):
        open_ways([str(root)], str(root / "jobs" / "1"))
    assert [mode(root / p) for p in ("", "jobs")] == [0o711, 0o711]
    assert [mode(root / p) for p in ("cluster.db", "jobs/log", "other", "jobs/1")] == [0o600, 0o600, 0o700, 0o700]
    assert mode(tmp_path) == 0o700, "it is none of ours"
    (root / "later").touch(mode=0o644)
    close_entries(str(root))
    assert (mode(root / "later"), mode(root / "jobs")) == (0o600, 0o711)


def test_the_first_directory_that_others_cannot_enter_is_named(tmp_path: Path) -> None:
    (tmp_path / "closed" / "python").mkdir(parents=True)
    (tmp_path / "closed").chmod(0o750)
    tmp_path.chmod(0o755)
    above = closed_way(str(tmp_path))
    assert closed_way(str(tmp_path / "closed" / "python")) == (above or str(tmp_path / "closed"))
    assert closed_way("/usr/bin") is None


@needs_root
def test_a_process_becomes_the_user_for_good() -> None:
    def life() -> Any:
        landlock.enter(Sandbox(write=("/",), user=SOMEBODY))
        try:
            os.setuid(0)
            again = "root again"
        except PermissionError:
            again = "refused"
        return [os.getresuid(), os.getresgid(), os.getgroups(), os.environ["HOME"], again]

    uids, gids, groups, home, again = in_a_child(life)
    assert uids == [SOMEBODY.uid] * 3
    assert gids == [SOMEBODY.gid] * 3
    assert groups == os.getgrouplist(SOMEBODY.name, SOMEBODY.gid)
    assert (home, again) == (SOMEBODY.home, "refused")


@needs_root
def test_without_landlock_the_user_is_the_wall(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landlock, "version", lambda: 0)

    def life() -> Any:
        landlock.enter(Sandbox(user=SOMEBODY))
        return [os.getuid(), os.access("/etc/shadow", os.R_OK), os.access("/etc/passwd", os.R_OK)]

    assert in_a_child(life) == [SOMEBODY.uid, False, True]


@needs_root
@pytest.mark.parametrize("version", [None, 0])
def test_a_confined_thread_is_the_user_and_its_process_is_not(
    monkeypatch: pytest.MonkeyPatch, version: int | None
) -> None:
    if version is not None:
        monkeypatch.setattr(landlock, "version", lambda: version)
    sandbox = Sandbox(write=("/",), user=SOMEBODY)

    def look() -> list[Any]:
        status = Path("/proc/thread-self/status").read_text()
        ids = {line.split()[1] for line in status.splitlines() if line.startswith(("Uid:", "Gid:"))}
        return [ids, os.access("/etc/shadow", os.R_OK, effective_ids=True)]

    assert confined(sandbox, look) == [{str(SOMEBODY.uid), str(SOMEBODY.gid)}, False]
    assert os.getresuid() == (0, 0, 0)
    assert look() == [{"0"}, True]


@needs_root
def test_what_is_lent_is_read_by_its_user_and_by_nobody_else(tmp_path: Path) -> None:
    directory = tmp_path / "artifacts"
    (directory / "key").mkdir(parents=True, mode=0o700)
    file = directory / "key" / "p.py"
    file.touch(mode=0o400)
    (directory / "link").symlink_to("/etc/shadow")
    before = mode(Path("/etc/shadow"))
    lend(str(directory), SOMEBODY)
    assert (directory.lstat().st_uid, mode(directory)) == (SOMEBODY.uid, 0o700)
    assert (file.lstat().st_uid, mode(file), mode(file.parent)) == (0, 0o444, 0o755)
    assert mode(Path("/etc/shadow")) == before
