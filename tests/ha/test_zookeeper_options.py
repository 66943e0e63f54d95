"""What is wrong with the configuration is said before anything is connected to, all of it at once."""

from __future__ import annotations

import asyncio
import importlib.util
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from firesteel.config import Configuration, load_configuration
from firesteel.errors import InvalidConfigError
from firesteel.ha.services import open_high_availability
from firesteel.ha.zookeeper.services import check, hosts_of

PREFIX = "high-availability.zookeeper"


def configured(tmp_path: Path, **options: str) -> Configuration:
    overrides = {
        "high-availability.type": "zookeeper",
        "high-availability.storageDir": str(tmp_path / "storage"),
        f"{PREFIX}.quorum": "localhost:1",
        **{f"{PREFIX}.{key.replace('__', '.').replace('_', '-')}": value for key, value in options.items()},
    }
    return load_configuration(overrides=overrides, environ={"HOME": str(tmp_path)}, cwd=tmp_path)


def problems(tmp_path: Path, **options: str) -> dict[str | None, str]:
    configuration = configured(tmp_path, **options)
    found = check(configuration.zookeeper, configuration.high_availability.storage_dir)
    assert all(problem.fix for problem in found)
    return {(problem.field or "").removeprefix(f"{PREFIX}."): problem.message for problem in found}


def test_quorum_and_storage_directory_are_needed(tmp_path: Path) -> None:
    configuration = load_configuration(
        overrides={"high-availability.type": "zookeeper"}, environ={"HOME": str(tmp_path)}, cwd=tmp_path
    )
    with pytest.raises(InvalidConfigError) as caught:
        asyncio.run(open_high_availability(configuration))
    assert [problem.field for problem in caught.value.problems] == [f"{PREFIX}.quorum", "high-availability.storageDir"]


@pytest.mark.parametrize(
    ("quorum", "hosts"),
    [
        ("a", "a:2181"),
        ("a:1,b:2 , c", "a:1,b:2,c:2181"),
        ("10.0.0.1:65535", "10.0.0.1:65535"),
        ("[::1]:2181,[fe80::1]", "[::1]:2181,[fe80::1]:2181"),
    ],
)
def test_ensemble(quorum: str, hosts: str) -> None:
    assert hosts_of(quorum) == hosts


@pytest.mark.parametrize("quorum", ["a:0", "a:65536", "a:x", "a b", "a,,b", "http://a", "a:1/chroot", "::1", ","])
def test_what_is_no_ensemble_is_refused(tmp_path: Path, quorum: str) -> None:
    assert list(problems(tmp_path, quorum=quorum)) == ["quorum"]


def test_path_of_the_ensemble_is_an_option_of_its_own(tmp_path: Path) -> None:
    configuration = configured(tmp_path, quorum="a:1,b:2/chroot")
    with pytest.raises(InvalidConfigError, match=r"path\.root"):
        asyncio.run(open_high_availability(configuration))


def test_protection_needs_credentials(tmp_path: Path) -> None:
    assert problems(tmp_path) == {}
    assert list(problems(tmp_path, client__acl="creator")) == ["client.acl"]
    assert problems(tmp_path, client__acl="creator", client__auth="user:pass:word") == {}
    for wrong in ("user", ":password", "user:"):
        assert list(problems(tmp_path, client__auth=wrong)) == ["client.auth"]


@pytest.mark.parametrize(
    ("quorum", "wrong"),
    [
        ("localhost:1,127.0.0.1:2,[::1]:3", []),
        ("127.0.0.1", []),
        ("zk1.example.org:2181", ["client.acl"]),
        ("localhost:1,10.0.0.7:2", ["client.acl"]),
        ("localhost.example.org", ["client.acl"]),
    ],
)
def test_an_ensemble_that_others_reach_is_not_open_to_everybody(tmp_path: Path, quorum: str, wrong: list[str]) -> None:
    """S31: the key with which nodes vouch for callers is in there."""
    assert list(problems(tmp_path, quorum=quorum)) == wrong
    assert problems(tmp_path, quorum=quorum, client__acl="creator", client__auth="user:password") == {}


def test_sasl_needs_a_user_a_password_and_a_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "")
    assert list(problems(tmp_path, sasl__mechanism="DIGEST-MD5")) == ["sasl.username", "sasl.password"]
    full = {"sasl__mechanism": "digest-md5", "sasl__username": "u", "sasl__password": "p", "client__acl": "creator"}
    assert problems(tmp_path, **full) == {}
    without(monkeypatch, "puresasl")
    assert list(problems(tmp_path, **full)) == ["sasl.mechanism"]


def test_tls_files_must_be_there_and_belong_together(tmp_path: Path) -> None:
    (tmp_path / "there.pem").write_text("no certificate")
    assert problems(tmp_path, ssl__enabled="true") == {}
    assert list(problems(tmp_path, ssl__ca="there.pem")) == ["ssl.ca"]
    assert list(problems(tmp_path, ssl__enabled="true", ssl__ca="there.pem")) == ["ssl.*"]
    assert list(problems(tmp_path, ssl__enabled="true", ssl__ca="gone.pem")) == ["ssl.ca"]
    assert list(problems(tmp_path, ssl__enabled="true", ssl__certificate="there.pem")) == ["ssl.key"]
    assert list(problems(tmp_path, ssl__enabled="true", ssl__key="there.pem")) == ["ssl.certificate"]


def without(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    def find(name: str) -> ModuleSpec | None:
        return None if name == missing else ModuleSpec(name, None)

    monkeypatch.setattr(importlib.util, "find_spec", find)


def test_missing_library_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "kazoo")
    with pytest.raises(InvalidConfigError, match=r'pip install "firesteel\[zookeeper\]"'):
        asyncio.run(open_high_availability(configured(tmp_path)))


def test_secrets_are_not_shown(tmp_path: Path) -> None:
    secret = {"client__auth": "u:canary", "sasl__password": "canary", "ssl__key_password": "canary"}
    assert "canary" not in repr(configured(tmp_path, **secret).zookeeper)
