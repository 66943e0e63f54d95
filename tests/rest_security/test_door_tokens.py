"""Bearer tokens in a file: S1 (nobody without one), S27 (no secret at rest), and two processes at once."""

from __future__ import annotations

import asyncio
import json
import os
import re
import stat
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.rest_security.rig import until_async

from firesteel.config.sections import Role
from firesteel.rest.security.principals import AuthenticationUnavailableError, Principal
from firesteel.rest.security.tokens import TokenFile

NOW = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "tokens.json"


def who(tokens: TokenFile, token: str) -> Principal | None:
    return asyncio.run(tokens.authenticate(token))


def test_a_token_opens_the_door_for_whom_it_was_made(path: Path) -> None:
    tokens = TokenFile(path)
    token = tokens.create("laptop", Role.OPERATOR, "alice")
    assert re.fullmatch(r"fst_[0-9a-f]{16}_[0-9a-f]{48}", token)
    assert who(tokens, token) == Principal("laptop", Role.OPERATOR, "alice")
    assert who(TokenFile(path), token) == Principal("laptop", Role.OPERATOR, "alice")


def test_the_file_is_private_and_has_no_token_in_it(path: Path) -> None:
    """S27"""
    token = TokenFile(path).create("laptop", Role.OPERATOR, "alice")
    secret = token.rpartition("_")[2]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    for file in path.parent.iterdir():
        assert secret not in file.read_text()


def test_two_tokens_never_look_alike(path: Path) -> None:
    tokens = TokenFile(path)
    made = {tokens.create("same", Role.VIEWER, "same") for _ in range(5)}
    records = json.loads(path.read_text())["tokens"]
    assert len(made) == 5
    for field in ("id", "salt", "hash"):
        assert len({r[field] for r in records}) == 5


def test_wrong_tokens_are_nobodys(path: Path) -> None:
    tokens = TokenFile(path)
    token, other = (tokens.create(name, Role.VIEWER, "alice") for name in ("a", "b"))
    prefix, identity, secret = token.split("_")
    for wrong in (
        "",
        "fst",
        secret,
        token[:-1],
        token + "0",
        token.upper(),
        f" {token}",
        f"{token}\n",
        f"{prefix}_{identity}_{'0' * 48}",
        f"{prefix}_{'0' * 16}_{secret}",
        f"{prefix}_{identity}_{other.split('_')[2]}",
        f"{prefix}_{identity}_" + json.loads(path.read_text())["tokens"][0]["hash"][:48],
        "é" * 69,
    ):
        assert who(tokens, wrong) is None, wrong


def test_without_a_file_nobody_gets_in(tmp_path: Path) -> None:
    """S1"""
    tokens = TokenFile(tmp_path / "tokens.json")
    assert who(tokens, f"fst_{'0' * 16}_{'0' * 48}") is None
    assert tokens.list() == ()
    assert list(tmp_path.iterdir()) == []


def test_a_token_expires(path: Path) -> None:
    now = NOW
    tokens = TokenFile(path, now=lambda: now)
    token = tokens.create("guest", Role.VIEWER, "alice", NOW + timedelta(hours=1))
    now = NOW + timedelta(minutes=59)
    assert who(tokens, token) is not None
    now = NOW + timedelta(hours=1)
    assert who(tokens, token) is None
    assert [t.name for t in tokens.list()] == ["guest"]


@pytest.mark.parametrize("expires", [NOW, NOW - timedelta(days=1), datetime(2031, 1, 1)])  # noqa: DTZ001
def test_a_token_that_never_works_is_not_made(path: Path, expires: datetime) -> None:
    with pytest.raises(ValueError, match="at a future time"):
        TokenFile(path, now=lambda: NOW).create("guest", Role.VIEWER, "alice", expires)
    assert not path.exists()


def test_a_principal_that_cannot_be_gets_no_token(path: Path) -> None:
    """S34: an operator for everybody would be an admin."""
    for name, role, owner in (("x", Role.OPERATOR, "*"), ("", Role.ADMIN, "a"), ("a\nb", Role.ADMIN, "a")):
        with pytest.raises(ValueError, match=r"operator|printable"):
            TokenFile(path).create(name, role, owner)
    assert not path.exists()


def test_a_revoked_token_stops_working_in_other_processes_too(path: Path) -> None:
    node, cli = TokenFile(path), TokenFile(path)
    token = cli.create("laptop", Role.OPERATOR, "alice")
    kept = cli.create("server", Role.VIEWER, "*")

    async def scenario() -> None:
        assert await node.authenticate(token) is not None
        assert await asyncio.to_thread(cli.revoke, token.split("_")[1])

        async def gone() -> bool:
            return await node.authenticate(token) is None

        await until_async(gone)
        assert await node.authenticate(kept) == Principal("server", Role.VIEWER, "*")

    asyncio.run(scenario())
    assert not cli.revoke(token.split("_")[1])
    assert [t.name for t in cli.list()] == ["server"]


def test_a_token_that_another_process_made_works(path: Path) -> None:
    node, cli = TokenFile(path), TokenFile(path)

    async def scenario() -> None:
        assert await node.authenticate(f"fst_{'0' * 16}_{'0' * 48}") is None  # the node has looked at the file already
        token = await asyncio.to_thread(cli.create, "laptop", Role.OPERATOR, "alice")

        async def known() -> Principal | None:
            return await node.authenticate(token)

        assert (await until_async(known)) == Principal("laptop", Role.OPERATOR, "alice")

    asyncio.run(scenario())


def test_a_flood_of_made_up_ids_does_not_become_a_flood_of_file_accesses(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = TokenFile(path)
    good = tokens.create("laptop", Role.OPERATOR, "alice")
    looks = 0
    look = TokenFile._look

    def counted(self: TokenFile) -> object:
        nonlocal looks
        looks += 1
        return look(self)

    monkeypatch.setattr(TokenFile, "_look", counted)
    monkeypatch.setattr("firesteel.rest.security.tokens.time.monotonic", lambda: 1000.0)  # no time passes

    async def flood() -> None:
        for number in range(500):
            assert await tokens.authenticate(f"fst_{number:016x}_{'0' * 48}") is None
            assert await tokens.authenticate("no token at all") is None
        assert await tokens.authenticate(good) is not None

    asyncio.run(flood())
    assert looks <= 2


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "JSON"),
        ("{", "JSON"),
        ("[]", "tokens"),
        ('{"version": 2, "tokens": []}', "version"),
        ('{"version": 1, "tokens": [], "extra": 1}', "extra"),
        ('{"version": 1, "tokens": [{"id": "x"}]}', "tokens.0"),
        ("\x00\x01", "JSON"),
    ],
)
def test_a_damaged_file_lets_nobody_in_and_is_never_written_over(path: Path, content: str, said: str) -> None:
    tokens = TokenFile(path)
    good = tokens.create("laptop", Role.OPERATOR, "alice")
    path.write_text(content)
    for action in (
        lambda: who(TokenFile(path), good),
        lambda: who(tokens, good),
        lambda: tokens.create("x", Role.ADMIN, "*"),
        lambda: tokens.revoke("0" * 16),
        tokens.list,
    ):
        tokens._checked = 0.0  # what is known of the file is a second old
        with pytest.raises(AuthenticationUnavailableError) as caught:
            action()
        assert str(path) in str(caught.value)
        assert said in str(caught.value)
        assert "—" in str(caught.value)
    assert path.read_text() == content


def test_a_record_that_was_tampered_with_is_damage(path: Path) -> None:
    tokens = TokenFile(path)
    tokens.create("laptop", Role.OPERATOR, "alice")
    whole = json.loads(path.read_text())
    for change in (
        {"owner": "*"},
        {"role": "root"},
        {"hash": "short"},
        {"created": "2030-01-01T00:00:00"},
        {"more": 1},
    ):
        path.write_text(json.dumps({**whole, "tokens": [{**whole["tokens"][0], **change}]}))
        with pytest.raises(AuthenticationUnavailableError) as caught:
            tokens.list()
        assert whole["tokens"][0]["hash"] not in str(caught.value)
    path.write_text(json.dumps({**whole, "tokens": whole["tokens"] * 2}))
    with pytest.raises(AuthenticationUnavailableError, match="twice"):
        tokens.list()


def test_a_file_that_comes_back_lets_people_in_again(path: Path) -> None:
    tokens = TokenFile(path)
    good = tokens.create("laptop", Role.OPERATOR, "alice")
    whole = path.read_text()

    async def scenario() -> None:
        await asyncio.to_thread(path.write_text, "{")
        with pytest.raises(AuthenticationUnavailableError):
            await tokens.authenticate(good)
        with pytest.raises(AuthenticationUnavailableError):  # what is remembered of it too
            await tokens.authenticate(good)
        await asyncio.to_thread(path.write_text, whole)

        async def back() -> Principal | None:
            try:
                return await tokens.authenticate(good)
            except AuthenticationUnavailableError:
                return None

        assert (await until_async(back)) == Principal("laptop", Role.OPERATOR, "alice")

    asyncio.run(scenario())


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_can_write_is_not_believed(path: Path, mode: int) -> None:
    """Whoever can write it can make tokens."""
    tokens = TokenFile(path)
    tokens.create("laptop", Role.OPERATOR, "alice")
    path.chmod(mode)
    with pytest.raises(AuthenticationUnavailableError, match=f"chmod 600 {path}"):
        tokens.list()
    path.chmod(0o640)
    assert len(tokens.list()) == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to give a file away")
def test_a_file_of_another_user_is_not_believed(path: Path) -> None:
    tokens = TokenFile(path)
    tokens.create("laptop", Role.OPERATOR, "alice")
    os.chown(path, 12345, 12345)
    with pytest.raises(AuthenticationUnavailableError, match="another user"):
        tokens.list()


def test_processes_that_add_tokens_at_once_lose_none(path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from firesteel.config.sections import Role\n"
        "from firesteel.rest.security.tokens import TokenFile\n"
        "[print(TokenFile(Path(sys.argv[1])).create(f'{sys.argv[2]}-{i}', Role.VIEWER, 'alice')) for i in range(10)]"
    )
    started = [
        subprocess.Popen([sys.executable, "-c", code, str(path), str(n)], stdout=subprocess.PIPE, text=True)
        for n in range(3)
    ]
    made = [line for process in started for line in process.communicate(timeout=60)[0].split()]
    assert all(process.returncode == 0 for process in started)
    tokens = TokenFile(path)
    assert len(tokens.list()) == len(set(made)) == 30

    async def all_work() -> bool:
        return all([await tokens.authenticate(token) for token in made])

    assert asyncio.run(all_work())


def test_the_event_loop_is_not_blocked_by_the_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody else's request goes on while a slow disk is read."""
    tokens = TokenFile(path)
    good = tokens.create("laptop", Role.OPERATOR, "alice")
    entered, let_go = threading.Event(), threading.Event()
    read = TokenFile._read

    def slow(self: TokenFile) -> object:
        entered.set()
        assert let_go.wait(30)
        return read(self)

    monkeypatch.setattr(TokenFile, "_read", slow)

    async def scenario() -> None:
        waiting = asyncio.create_task(tokens.authenticate(good))

        async def reading() -> bool:
            return entered.is_set()

        await until_async(reading)  # the loop runs while the file is being read
        assert not waiting.done()
        assert await tokens.authenticate("not a token") is None
        let_go.set()
        assert await waiting is not None

    asyncio.run(scenario())
