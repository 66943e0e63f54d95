"""Which cluster a command line means: `-t`, `-m`, `execution.target`, `client.addresses`, or none of them."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from tests.cli.commands import Command

from firesteel import __version__
from firesteel.cli import exit_codes
from firesteel.cli.custom_command_lines import COMMAND_LINES, ClusterOptions, DefaultCLI, GenericCLI, effective
from firesteel.cli.main import COMMANDS
from firesteel.cli.options import Given
from firesteel.config import load_configuration


def given(tmp_path: Path, file: str = "", environ: dict[str, str] | None = None, **overrides: str) -> Given:
    config = tmp_path / "config.yaml"
    config.write_text(file or "{}")
    settings = {k.replace("__", "."): v for k, v in overrides.items()}
    configuration = load_configuration(
        file=config, overrides=settings, environ={"HOME": str(tmp_path), **(environ or {})}, cwd=tmp_path
    )
    return Given(configuration, settings, {}, config)


def target_of(found: Given) -> tuple[str | None, tuple[str, ...]]:
    return found.configuration.execution.target, found.configuration.client.addresses


def test_generic_command_line_comes_before_the_default_one() -> None:
    assert [type(c) for c in COMMAND_LINES] == [GenericCLI, DefaultCLI]


def test_nothing_said_is_the_cluster_of_this_machine(tmp_path: Path) -> None:
    assert target_of(effective(given(tmp_path))) == ("local", ())


def test_address_is_a_remote_cluster(tmp_path: Path) -> None:
    found = effective(given(tmp_path), ClusterOptions(address="a:1, https://b:2"))
    assert target_of(found) == ("remote", ("http://a:1", "https://b:2"))
    assert found.overrides["client.addresses"] == "http://a:1 https://b:2"


def test_addresses_of_the_configuration_are_a_remote_cluster(tmp_path: Path) -> None:
    assert target_of(effective(given(tmp_path, "client.addresses: http://a:1")))[0] == "remote"


def test_target_of_file_environment_and_command_line_count_in_this_order(tmp_path: Path) -> None:
    file, variable = "execution.target: remote\nclient.addresses: http://a:1", {"FIRESTEEL_EXECUTION_TARGET": "local"}
    assert target_of(effective(given(tmp_path, file)))[0] == "remote"
    assert target_of(effective(given(tmp_path, file, variable)))[0] == "local"
    assert target_of(effective(given(tmp_path, file, variable, execution__target="x-session")))[0] == "x-session"
    chosen = effective(given(tmp_path, file, variable, execution__target="x-session"), ClusterOptions("y-session"))
    assert target_of(chosen)[0] == "y-session"


def test_local_target_ignores_addresses_that_are_meant_for_other_commands(tmp_path: Path) -> None:
    found = effective(given(tmp_path, "client.addresses: http://a:1"), ClusterOptions("local"))
    assert target_of(found) == ("local", ())


def test_effective_configuration_stays_as_it_is_when_asked_for_again(tmp_path: Path) -> None:
    once = effective(given(tmp_path), ClusterOptions(address="a:1"))
    assert effective(once) is once


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (ClusterOptions("local", "a:1"), "-t local and -m exclude each other"),
        (ClusterOptions("remote"), "-t remote needs -m ADDRESS"),
    ],
)
def test_contradictions_are_wrong_command_lines(tmp_path: Path, line: ClusterOptions, why: str) -> None:
    with pytest.raises(click.UsageError, match=why):
        effective(given(tmp_path), line)


# -- as Flink's client answers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("option", ["-v", "--version"])
def test_version_is_printed(command: Command, option: str) -> None:
    said = command(option)
    assert (said.code, said.out.strip()) == (exit_codes.OK, f"Version: {__version__}")


def test_no_action_prints_help_and_asks_for_one(command: Command) -> None:
    said = command()
    assert said.code == exit_codes.FAILED
    assert said.err.strip() == "Please specify an action."
    assert all(action in said.out for action in COMMANDS)


def test_unknown_action_lists_the_valid_ones(command: Command) -> None:
    said = command("xylophone")
    assert (said.code, said.out) == (exit_codes.FAILED, "")
    lines = said.err.splitlines()
    assert lines[0] == '"xylophone" is not a valid action.'
    assert lines[2] == f"Valid actions are {', '.join(f'{chr(34)}{a}{chr(34)}' for a in COMMANDS)}."
    assert "-v or --version" in lines[4]
    assert "-h or --help" in lines[5]


@pytest.mark.parametrize(
    "args",
    [
        ["list"],
        ["status", "a"],
        ["cancel", "a"],
        ["stop", "a"],
        ["savepoint", "a"],
        ["logs", "a"],
        ["events"],
        ["wait", "a"],
        ["history"],
        ["resume", "a"],
        ["cluster", "status"],
        ["dashboard"],
    ],
    ids=" ".join,
)
def test_every_command_about_jobs_takes_a_target(command: Command, args: list[str]) -> None:
    said = command(*args, "-t", "yarn-session")
    assert said.code == exit_codes.FAILED
    assert "the target 'yarn-session' is not available in this version" in said.err
    assert "local, remote, standalone-application" in said.err


def test_application_that_does_not_run_is_not_started_by_a_question(command: Command) -> None:
    said = command("list", "-t", "standalone-application", "-Dhigh-availability.cluster-id=application-1")
    assert said.code == exit_codes.UNREACHABLE
    assert "no cluster of the target 'standalone-application' is running (cluster application-1" in said.err
