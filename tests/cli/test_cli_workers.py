"""`firesteel worker`: the list, tokens, draining, hosts that are lost, and the unit."""

from __future__ import annotations

import configparser
import dataclasses
import os
import pty
import sys
import time
from pathlib import Path

import pytest
from tests.cli.commands import Command
from tests.client.fake_cluster import Node
from tests.rest.desk import Desk
from tests.rest.fake_fleet import ONE, TWO, FakeFleet, view

from firesteel.cli import exit_codes, worker
from firesteel.fleet.view import Standing, WorkerView


@pytest.fixture
def fleet(desk: Desk) -> FakeFleet:
    made = FakeFleet(
        view(since=time.time()),
        view(
            TWO, "beta", standing=Standing.SILENT, last_heard=time.time() - 20, gone_at=time.time() + 50, policy="stop"
        ),
    )
    desk.gateway.fleet = made
    return made


def test_list_shows_each_worker_and_wide_shows_where_it_is(command: Command, fleet: FakeFleet, rest: Node) -> None:
    there = ["-m", rest.address]
    fleet.views[ONE] = dataclasses.replace(fleet.views[ONE], draining=True)
    said = command("worker", "list", *there)
    one, two = said.out.splitlines()[1:]
    assert one.split() == ["alpha", "CONNECTED,", "draining", "now", "8", "16g", "1/2", "3", "stop"]
    assert "SILENT" in two
    assert "counts as lost in" in two
    assert "alpha.internal" not in said.out
    wide = command("worker", "list", "--output", "wide", *there)
    assert all(text in wide.out for text in (ONE, "alpha.internal", "10.0.0.7", "landlock", "zone=a"))
    listed = command("worker", "list", "--json", *there).json
    assert [(w["worker_id"], w["standing"]) for w in listed] == [(ONE, "CONNECTED"), (TWO, "SILENT")]
    assert listed[0]["labels"] == {"zone": "a"}


def test_no_workers(command: Command, desk: Desk, rest: Node) -> None:
    said = command("worker", "list", "-m", rest.address)
    assert (said.code, "firesteel worker token" in said.out) == (exit_codes.OK, True)


def test_a_token_is_all_that_standard_output_has(command: Command, desk: Desk, rest: Node) -> None:
    said = command("worker", "token", "--name", "alpha", "--expires", "30 min", "-m", rest.address)
    assert said.code == exit_codes.OK
    assert said.out.startswith("fst_join.")
    assert len(said.out.split()) == 1
    assert "'alpha'" in said.err
    assert said.out.strip() not in said.err
    made = command("worker", "token", "--json", "-m", rest.address).json
    assert abs(made["expires_at"] - time.time() - 3600) < 60
    for wrong in ("soon", "10"):
        assert command("worker", "token", "--expires", wrong, "-m", rest.address).code == exit_codes.USAGE
    refused = command("worker", "token", "--expires", "8 d", "-m", rest.address)
    assert refused.code == exit_codes.INVALID
    assert command("worker", "token", "--name", "a b", "-m", rest.address).code == exit_codes.INVALID


def test_drain_and_undrain(command: Command, fleet: FakeFleet, rest: Node) -> None:
    there = ["-m", rest.address]
    assert "3 attempts run there" in command("worker", "drain", "alpha", *there).out
    assert command("worker", "undrain", ONE, "--json", *there).json["draining"] is False
    assert fleet.asked == [("drain", ONE), ("undrain", ONE)]
    missing = command("worker", "drain", "nobody", *there)
    assert (missing.code, "nobody" in missing.err) == (exit_codes.FAILED, True)


def test_drain_waits_until_nothing_runs_there(
    command: Command, fleet: FakeFleet, rest: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "POLL_SECONDS", 0.0)
    left = [3, 2, 2, 1, 0]
    views = fleet.workers

    def fewer() -> list[WorkerView]:
        now = left.pop(0) if len(left) > 1 else 0
        return [dataclasses.replace(w, attempts=now) if w.worker == ONE else w for w in views()]

    monkeypatch.setattr(fleet, "workers", fewer)
    said = command("worker", "drain", "alpha", "--wait", "-m", rest.address)
    assert (said.code, "nothing runs there" in said.out) == (exit_codes.OK, True)
    assert said.err.splitlines()[-1] == "1 attempt runs on alpha"


def test_drain_that_somebody_undoes_is_not_waited_for(
    command: Command, fleet: FakeFleet, rest: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "POLL_SECONDS", 0.0)

    async def undone(worker_id: str) -> None:
        fleet.asked.append(("drain", worker_id))

    monkeypatch.setattr(fleet, "drain", undone)
    said = command("worker", "drain", "alpha", "--wait", "-m", rest.address)
    assert (said.code, "undrained" in said.err) == (exit_codes.FAILED, True)


def test_lost_needs_a_yes(command: Command, fleet: FakeFleet, rest: Node) -> None:
    there = ["-m", rest.address]
    refused = command("worker", "lost", "beta", *there)
    assert (refused.code, "--yes" in refused.err, fleet.asked) == (exit_codes.FAILED, True, [])
    connected = command("worker", "lost", "alpha", "--yes", *there)
    assert (connected.code, "connected" in connected.err) == (exit_codes.FAILED, True)
    assert command("worker", "lost", "beta", "--yes", *there).code == exit_codes.OK
    assert fleet.asked == [("lost", TWO, "root")]


@pytest.mark.parametrize(("typed", "declared"), [(b"y\n", True), (b"n\n", False), (b"\n", False)])
def test_on_a_terminal_lost_says_what_it_means_and_asks(
    command: Command, fleet: FakeFleet, rest: Node, monkeypatch: pytest.MonkeyPatch, typed: bytes, declared: bool
) -> None:
    primary, terminal = pty.openpty()
    os.write(primary, typed)
    try:
        with os.fdopen(terminal) as keyboard:
            monkeypatch.setattr(sys, "stdin", keyboard)
            said = command("worker", "lost", "beta", "-m", rest.address)
    finally:
        os.close(primary)
    assert "everything on that host counts as ended" in said.err
    assert "would run twice" in said.err
    assert (said.code == exit_codes.OK) == declared, said.err
    assert fleet.asked == ([("lost", TWO, "root")] if declared else [])


def test_revoke(command: Command, fleet: FakeFleet, rest: Node) -> None:
    said = command("worker", "revoke", "alpha", "-m", rest.address)
    assert (said.code, ONE in said.out) == (exit_codes.OK, True)
    assert fleet.asked == [("revoke", ONE)]


def test_without_a_cluster_nothing_is_woken_up(command: Command, tmp_path: Path) -> None:
    said = command("worker", "list")
    assert said.code == exit_codes.UNREACHABLE
    assert not (tmp_path / "data" / "clusters").exists()


# -- the unit -----------------------------------------------------------------------------------------------------------


def test_the_unit_leaves_drivers_and_engines_alone(command: Command) -> None:
    said = command(
        "worker", "unit", "--user", "spark", "--name", "alpha", "-m", "https://a:8081", "-Ddata.dir=/srv/50% $x y"
    )
    assert said.code == exit_codes.OK
    unit = configparser.ConfigParser(interpolation=None, strict=False)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string(said.out)
    service = unit["Service"]
    assert (service["User"], service["KillMode"], service["Restart"]) == ("spark", "process", "always")
    words = service["ExecStart"]
    assert words.startswith("/")
    assert " worker start --foreground --name alpha " in words
    assert '"-Ddata.dir=/srv/50%% $$x y"' in words
    assert "-Dclient.addresses=https://a:8081" in words
    assert unit["Install"]["WantedBy"] == "multi-user.target"


def test_no_secret_gets_into_a_unit(command: Command) -> None:
    """S27"""
    said = command("worker", "unit", "-Dclient.token=fst_0123456789abcdef_secret")
    assert (said.code, said.out) == (exit_codes.FAILED, "")
    assert "client.token" in said.err
    assert "fst_" not in said.err
    assert command("worker", "unit", "-Ddata.dir=/a\nUser=root").code == exit_codes.FAILED
