"""`security.sandbox: user`: what it needs is said when a node starts, and who has no user when a job is submitted."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from firesteel.config import Configuration, load_configuration
from firesteel.errors import EnvironmentNotReadyError, InvalidRequestError
from firesteel.worker import sandboxing
from firesteel.worker.sandboxing import check_owner, close_files_of_the_node, sandbox_policy, users_are_missing


def configured(tmp_path: Path, **options: str) -> Configuration:
    given = {k.replace("__", "."): v for k, v in options.items()}
    overrides = {"data.dir": str(tmp_path / "data"), "security.sandbox": "user", **given}
    return load_configuration(overrides=overrides, environ={"HOME": str(tmp_path)}, cwd=tmp_path)


@pytest.fixture
def as_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine whose programs are where everybody can enter."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(sandboxing, "closed_way", lambda path: None)


def test_a_node_that_is_not_roots_does_not_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(
        EnvironmentNotReadyError, match=r"security\.sandbox is user, but this node does not run as root"
    ):
        sandbox_policy(configured(tmp_path))


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"engine__isolation": "session"}, r"engine\.isolation is session"),
        ({"security__sandbox.users": "alice=a bob"}, "'bob', which is not of the form owner=user"),
        ({"security__sandbox.users": "alice="}, "'alice=', which is not of the form owner=user"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    tmp_path: Path, as_root: None, options: dict[str, str], why: str
) -> None:
    with pytest.raises(EnvironmentNotReadyError, match=why):
        sandbox_policy(configured(tmp_path, **options))


def test_programs_and_directories_have_to_be_where_users_can_enter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    monkeypatch.setattr(sandboxing, "_programs", lambda _: ())
    missing = users_are_missing(configured(closed))
    assert missing is not None
    assert "other users cannot enter" in missing
    assert "data.dir" in missing


def test_an_owner_without_a_user_is_refused_and_the_nodes_user_needs_none(tmp_path: Path, as_root: None) -> None:
    configuration = configured(tmp_path)
    policy = sandbox_policy(configuration)
    assert policy is not None
    check_owner(configuration, policy.user)
    with pytest.raises(InvalidRequestError, match="useradd --create-home fst-nobody"):
        check_owner(configuration, "fst-nobody")


def test_other_sandboxes_ask_for_no_users(tmp_path: Path) -> None:
    check_owner(configured(tmp_path, security__sandbox="off"), "fst-nobody")


def test_files_of_the_node_are_closed_when_it_starts(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        configuration = configured(tmp_path)
        directory = tmp_path / "data" / "clusters" / "default"
        directory.mkdir(parents=True)
        for file in (directory / "node-2.log", tmp_path / "data" / "cluster.db"):
            file.touch(mode=0o644)
        close_files_of_the_node(configuration)
        for file in (directory / "node-2.log", tmp_path / "data" / "cluster.db"):
            assert file.stat().st_mode & 0o077 == 0
        assert os.umask(0o077) == 0o077
    finally:
        os.umask(before)
