"""The kernel keeps the rules: each test is a process that enters a sandbox and tries."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from tests.support.sleeper import sleeper

from firesteel.sandbox import become, landlock
from firesteel.sandbox.policy import SandboxPolicy
from firesteel.sandbox.rules import Sandbox, real
from firesteel.sandbox.thread import confined

pytestmark = pytest.mark.skipif(
    landlock.version() < landlock.SCOPES_VERSION, reason="needs Landlock with scopes: Linux 6.12 or later"
)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory with a secret in it, and something to work with beside it."""
    hidden = tmp_path / "data"
    (hidden / "own").mkdir(parents=True)
    (hidden / "secret").write_text("s3cret")
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "input").write_text("rows")
    return hidden


def policy(data: Path, *, read: tuple[str, ...] = (), write: tuple[str, ...] = ()) -> SandboxPolicy:
    programs = real(sys.prefix, sys.base_prefix, *filter(os.path.exists, sys.path))
    return SandboxPolicy(user="ann", hidden=real(data), programs=programs, read=read, write=write)


def attempt(sandbox: Sandbox, program: str, *args: object) -> dict[str, str]:
    """Run `program` within: it tries things by `tried(name, function)`, and this gives what came of each."""
    prelude = textwrap.dedent(
        """
        import json, os, signal, socket, subprocess, sys
        outcomes = {}
        def tried(name, function):
            try:
                outcomes[name] = str(function())
            except OSError as error:
                outcomes[name] = type(error).__name__
        """
    )
    text = prelude + textwrap.dedent(program) + "\nprint(json.dumps(outcomes))\n"
    argv = [sys.executable, "-I", "-S", become.__file__, json.dumps(sandbox.to_json()), sys.executable, "-c", text]
    done = subprocess.run([*argv, *map(str, args)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    outcomes: dict[str, str] = json.loads(done.stdout)
    return outcomes


@pytest.mark.parametrize("owner", [None, "bob"])
def test_what_is_hidden_can_be_neither_read_nor_changed_by_any_call(data: Path, owner: str | None) -> None:
    outcomes = attempt(
        policy(data).files(owner),
        """
        path = sys.argv[1]
        tried("read", lambda: open(path).read())
        tried("read by cat", lambda: subprocess.run(["cat", path], capture_output=True, text=True).stdout)
        tried("write", lambda: open(path, "w"))
        tried("truncate", lambda: os.truncate(path, 0))
        tried("remove", lambda: os.unlink(path))
        tried("rename", lambda: os.rename(path, path + "2"))
        tried("link", lambda: os.link(path, os.path.dirname(os.path.dirname(path)) + "/project/link"))
        tried("make", lambda: open(path + "3", "x"))
        tried("mkdir", lambda: os.mkdir(path + "4"))
        tried("symlink", lambda: os.symlink("x", path + "5"))
        tried("fifo", lambda: os.mkfifo(path + "6"))
        tried("by descriptor", lambda: open("secret", opener=lambda p, f: os.open(
            p, f, dir_fd=os.open(os.path.dirname(path), os.O_PATH))))
        """,
        data / "secret",
    )
    assert outcomes.pop("read by cat") == ""
    assert set(outcomes.values()) <= {"PermissionError", "OSError"}, outcomes
    assert (data / "secret").read_text() == "s3cret"
    assert sorted(p.name for p in data.iterdir()) == ["own", "secret"]


def test_a_link_to_what_is_hidden_leads_nowhere(data: Path) -> None:
    link = data.parent / "project" / "link"
    link.symlink_to(data)
    beside = data.parent / "beside"
    beside.symlink_to(data)
    outcomes = attempt(
        policy(data).files(None),
        'tried("link", lambda: open(sys.argv[1]).read()); tried("beside", lambda: open(sys.argv[2]).read())',
        link / "secret",
        beside / "secret",
    )
    assert outcomes == {"link": "PermissionError", "beside": "PermissionError"}


def test_the_user_of_the_node_sees_what_is_made_later_and_what_they_could_open_by_hand(data: Path) -> None:
    """An engine lives long; a directory that its owner makes meanwhile has to be there for it."""
    outcomes = attempt(
        policy(data).files("ann"),
        """
        made = sys.argv[1]
        tried("make", lambda: os.mkdir(made))
        tried("write", lambda: open(made + "/x", "w").write("1234"))
        tried("own file", lambda: open(sys.argv[2]).read())
        """,
        data.parent / "later",
        data / "secret",
    )
    assert outcomes == {"make": "None", "write": "4", "own file": "s3cret"}


@pytest.mark.parametrize("owner", [None, "ann"])
def test_the_user_of_the_node_and_engines_of_all_owners_work_everywhere_else(data: Path, owner: str | None) -> None:
    project = data.parent / "project"
    outcomes = attempt(
        policy(data).files(owner),
        """
        project = sys.argv[1]
        tried("read", lambda: open(project + "/input").read())
        tried("list the parent", lambda: "project" in os.listdir(os.path.dirname(project)))
        os.mkdir(project + "/a"); os.mkdir(project + "/b")
        tried("write", lambda: open(project + "/a/x", "w").write("1234"))
        tried("move between directories", lambda: os.rename(project + "/a/x", project + "/b/y"))
        tried("device", lambda: open("/dev/null", "w").write("x"))
        tried("another program", lambda: subprocess.run(["true"]).returncode)
        """,
        project,
    )
    assert outcomes == {
        "read": "rows",
        "list the parent": "True",
        "write": "4",
        "move between directories": "None",
        "device": "1",
        "another program": "0",
    }


def test_others_work_where_an_admin_lets_them_and_nowhere_else(data: Path) -> None:
    shared, given = data.parent / "shared", data.parent / "given"
    for directory in (shared, given):
        directory.mkdir()
        (directory / "x").write_text("x")
    outcomes = attempt(
        policy(data, read=real(given), write=real(shared)).files("bob"),
        """
        project, given, shared = sys.argv[1:]
        tried("project", lambda: open(project + "/input").read())
        tried("home", lambda: os.listdir(os.path.expanduser("~")))
        tried("read given", lambda: open(given + "/x").read())
        tried("write given", lambda: open(given + "/y", "w"))
        tried("write shared", lambda: open(shared + "/y", "w").write("y"))
        tried("shadow", lambda: open("/etc/shadow").read())
        tried("a program", lambda: subprocess.run(["true"]).returncode)
        """,
        data.parent / "project",
        given,
        shared,
    )
    assert outcomes == {
        "project": "PermissionError",
        "home": "PermissionError",
        "read given": "x",
        "write given": "PermissionError",
        "write shared": "1",
        "shadow": "PermissionError",
        "a program": "0",
    }


def test_nothing_outside_can_be_signalled_traced_or_asked(data: Path) -> None:
    with sleeper() as process, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0firesteel-test-{os.getpid()}")
        listener.listen()
        outcomes = attempt(
            policy(data).files("ann"),
            """
            pid, name = int(sys.argv[1]), sys.argv[2]
            tried("kill", lambda: os.kill(pid, signal.SIGKILL))
            tried("environment", lambda: open(f"/proc/{pid}/environ").read())
            tried("memory", lambda: open(f"/proc/{pid}/maps").read())
            tried("files", lambda: open(f"/proc/{pid}/fd/0").read())
            tried("root", lambda: os.listdir(f"/proc/{pid}/root"))
            tried("socket", lambda: socket.socket(socket.AF_UNIX).connect("\\0" + name))
            child = subprocess.Popen(["sleep", "60"])
            tried("own child", lambda: os.kill(child.pid, signal.SIGKILL))
            """,
            process.pid,
            f"firesteel-test-{os.getpid()}",
        )
        assert process.alive
    assert outcomes.pop("own child") == "None"
    assert set(outcomes.values()) == {"PermissionError"}, outcomes


def test_what_a_process_starts_cannot_leave_either(data: Path) -> None:
    outcomes = attempt(
        policy(data).files(None),
        """
        code = "print(open(" + repr(sys.argv[1]) + ").read())"
        again = [sys.executable, "-c", code]
        tried("session", lambda: subprocess.run(again, capture_output=True, start_new_session=True).returncode)
        tried("mount", lambda: subprocess.run(["mount", "--bind", os.path.dirname(sys.argv[1]), "/mnt"],
            capture_output=True).returncode == 0)
        """,
        data / "secret",
    )
    assert outcomes == {"session": "1", "mount": "False"}


def test_a_thread_is_confined_and_the_process_is_not(data: Path) -> None:
    sandbox = policy(data).files("bob")
    with pytest.raises(PermissionError):
        confined(sandbox, (data / "secret").read_text)
    assert (data / "secret").read_text() == "s3cret"
    assert confined(None, (data / "secret").read_text) == "s3cret"
    assert confined(sandbox, lambda: 7) == 7


def test_a_process_that_cannot_enter_its_sandbox_does_not_become_the_program(data: Path) -> None:
    argv = [sys.executable, "-I", "-S", become.__file__, "{}", "/bin/echo", "ran"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert done.stdout == ""
