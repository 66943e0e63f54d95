"""The cluster of this machine: woken up by whoever needs it, with the settings of the one who does; asleep when nobody does."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from firesteel.cli.options import Given
from firesteel.client.cluster import ClusterClient
from firesteel.client.discovery import LocalCluster, find_local
from firesteel.config import load_configuration
from firesteel.deployment.local_nodes import awake, start_node
from firesteel.errors import FiresteelError, InvalidConfigError
from firesteel.processes import end


class Machine:
    def __init__(self, root: Path) -> None:
        self._root = root
        self.nodes: list[LocalCluster] = []

    def given(self, **settings: str) -> Given:
        overrides = {
            "data.dir": str(self._root),
            **{k.replace("__", ".").replace("_", "-"): v for k, v in settings.items()},
        }
        return Given(load_configuration(overrides=overrides, environ={"HOME": str(self._root)}), overrides, {}, None)

    def awake(self, **settings: str) -> LocalCluster:
        found = awake(self.given(**settings)).cluster
        self.nodes.append(found)
        return found


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    for variable in [v for v in os.environ if v.startswith("FIRESTEEL_")]:
        monkeypatch.delenv(variable)  # a node reads its own
    made = Machine(tmp_path)
    yield made
    for node in made.nodes:
        end(node.process, grace=10)


def test_awake_cluster_is_used_again(machine: Machine) -> None:
    first = machine.awake()
    assert machine.awake() == first
    with ClusterClient(first.address, token=first.token) as client:
        assert client.jobs() == ()
        assert client.whoami().role == "admin"


@pytest.mark.slow
def test_idle_cluster_makes_way_for_other_settings(machine: Machine) -> None:
    first = machine.awake()
    second = machine.awake(engine__slots="3")
    assert second.process != first.process
    assert not first.process.alive
    assert (
        machine.awake(engine__slots="3", client__timeout="7 s") == second
    )  # a client's own settings are no other cluster


@pytest.mark.slow
def test_cluster_that_was_started_on_purpose_does_not_make_way(machine: Machine) -> None:
    machine.nodes.append(start_node(machine.given(rest__port="0"), woken=False))
    assert machine.awake() == machine.nodes[0]
    with pytest.raises(FiresteelError, match=r"other settings \(engine.slots\).*firesteel cluster stop"):
        machine.awake(engine__slots="3")
    assert machine.nodes[0].process.alive


@pytest.mark.slow
def test_setting_that_the_command_lacks_is_named_with_the_cure(machine: Machine) -> None:
    """Who has left it out is not told to leave it out."""
    machine.nodes.append(start_node(machine.given(rest__port="0", engine__slots="3"), woken=False))
    with pytest.raises(FiresteelError, match=r"set engine.slots for this command as well, with -D") as caught:
        machine.awake()
    assert "leave" not in str(caught.value)


@pytest.mark.slow
def test_spark_settings_of_a_started_cluster_need_not_be_repeated(machine: Machine) -> None:
    given = machine.given(rest__port="0", **{"spark.sql.shuffle.partitions": "3"})
    machine.nodes.append(start_node(given, woken=False))
    assert machine.awake() == machine.nodes[0]


@pytest.mark.slow
def test_other_store_than_the_cluster_has_is_named(machine: Machine, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'elsewhere.db'}"
    given = machine.given(rest__port="0", high_availability__sql__url=store)
    machine.nodes.append(start_node(given, woken=False))
    with pytest.raises(InvalidConfigError, match=r"high-availability\.sql\.url.*set the same"):
        machine.awake()
    assert machine.awake(high_availability__sql__url=store) == machine.nodes[0]


@pytest.mark.slow
def test_cluster_goes_to_sleep_when_nobody_needs_it(machine: Machine) -> None:
    node = machine.awake(local_cluster__idle_timeout="300 ms")
    assert node.process.wait(60)
    assert find_local(machine.given().configuration) is None
    again = machine.awake()
    assert again.process != node.process


def test_node_that_cannot_start_says_why(machine: Machine) -> None:
    with pytest.raises(FiresteelError, match=r"(?s)did not start.*security.rest.authentication"):
        machine.awake(rest__bind_address="0.0.0.0", security__rest__authentication="none")


@pytest.mark.slow
def test_secret_settings_are_in_no_command_line(machine: Machine) -> None:
    """S27: whoever lists the processes of this machine sees no token."""
    node = machine.awake(engine__token="canary-7f3a")
    assert b"canary-7f3a" not in Path(f"/proc/{node.process.pid}/cmdline").read_bytes()
