"""`firesteel worker` manages the hosts that jobs run on."""

from __future__ import annotations

import dataclasses
import functools
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from firesteel.cli import exit_codes
from firesteel.cli.connection import cluster_options, retrieved
from firesteel.cli.custom_command_lines import ClusterOptions, effective
from firesteel.cli.options import Given, configured, json_option
from firesteel.cli.tables import console, count, echo_json, is_wide, moment, new_table, plain, span
from firesteel.cli.worker_start import start
from firesteel.client.cluster import ClusterClient
from firesteel.client.model import WorkerSummary
from firesteel.config.sections import OPTIONS
from firesteel.deployment.effective import EffectiveConfiguration
from firesteel.durations import seconds
from firesteel.errors import FiresteelError, WorkerStateError
from firesteel.hosts import this_user

POLL_SECONDS = 1.0
_STYLES = {"EXPECTED": "dim", "CONNECTED": "green", "SILENT": "yellow", "LOST": "red"}


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def worker() -> None:
    """Manage workers: the hosts that jobs run on."""


worker.add_command(start)


def _asking(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `-m`, `-t`, `-D` and `--config`; it receives `client`, of a cluster that has to be there."""

    @cluster_options
    @configured
    @functools.wraps(function)
    def wrapper(given: Given, line: ClusterOptions, **rest: Any) -> Any:
        with retrieved(effective(given, line)) as client:
            return function(client=client, **rest)

    return wrapper


@worker.command("list")
@json_option
@_asking
def list_workers(client: ClusterClient, as_json: bool) -> int:
    """List the workers, with what the leader knows of each. With --output wide also their hosts and labels."""
    workers = client.workers()
    if as_json:
        echo_json([_json(w) for w in workers])
        return exit_codes.OK
    if not workers:
        click.echo("No workers but those of the nodes. `firesteel worker token` makes a token with which one may join.")
        return exit_codes.OK
    columns = ["worker", "standing", "heard", "cores", "memory", "engines", "attempts", "isolated"]
    numbers = ["cores", "memory", "engines", "attempts"]
    if is_wide():
        columns += ["id", "host", "address", "sandbox", "labels"]
    table = new_table(*columns, right=numbers, whole=["worker", "standing", "id"])
    for w in workers:
        row = [plain(w.name), _standing(w), plain(_heard(w)), *_numbers(w), plain(w.policy)]
        if is_wide():
            labels = " ".join(f"{k}={v}" for k, v in sorted(w.labels.items()))
            row += [plain(x) for x in (w.worker_id, w.host, w.address, w.sandbox, labels)]
        table.add_row(*row)
    console().print(table)
    return exit_codes.OK


def _json(w: WorkerSummary) -> dict[str, Any]:
    return {**dataclasses.asdict(w), "labels": dict(w.labels)}


def _standing(w: WorkerSummary) -> Text:
    words = [w.standing]
    words += ["draining"] if w.draining else []
    words += ["revoked"] if w.revoked else []
    return plain(", ".join(words), _STYLES.get(w.standing, ""))


def _heard(w: WorkerSummary) -> str:
    if w.standing == "CONNECTED":
        return "now"
    if w.standing == "SILENT" and w.gone_at is not None and w.gone_at > time.time():
        return f"{span(time.time() - (w.last_heard or w.since))} ago; counts as lost in {span(w.gone_at - time.time())}"
    return f"{span(time.time() - w.last_heard)} ago" if w.last_heard is not None else "never by this leader"


def _numbers(w: WorkerSummary) -> list[Text]:
    if not w.cores:  # it has not said yet
        return [plain("")] * 4
    return [plain(x) for x in (w.cores, w.memory, f"{w.engines}/{w.max_engines}", w.attempts)]


def _lifetime(_context: click.Context, _parameter: click.Parameter, value: str) -> float:
    try:
        return seconds(value)
    except (ValueError, OverflowError):
        raise click.BadParameter(f"'{value}' is not a duration; write for example 30 min or 2 h") from None


@worker.command()
@click.option("--name", default="", help="The worker that may join with it; by default any.")
@click.option(
    "--expires",
    "lifetime",
    metavar="DURATION",
    default="1 h",
    show_default=True,
    callback=_lifetime,
    help="How long the token is valid, at most 7 d.",
)
@json_option
@_asking
def token(client: ClusterClient, name: str, lifetime: float, as_json: bool) -> int:
    """Make a token with which one worker may join, and print it. It is shown only this once."""
    made = client.worker_token(name, lifetime=lifetime)
    if as_json:
        echo_json(dataclasses.asdict(made))
        return exit_codes.OK
    click.echo(made.token)
    whom = f"a worker called '{name}'" if name else "one worker"
    click.echo(
        f"It lets {whom} join until {moment(made.expires_at)}. On its host:\n"
        f"  FIRESTEEL_WORKER_TOKEN=... firesteel worker start -m {client.addresses[0]}",
        err=True,
    )
    return exit_codes.OK


@worker.command()
@click.argument("name")
@click.option("--wait", is_flag=True, help="Return when nothing runs there any more.")
@json_option
@_asking
def drain(client: ClusterClient, name: str, wait: bool, as_json: bool) -> int:
    """Let worker NAME get no new jobs; what runs there runs to its end.

    Batch jobs end by themselves. Stop a stream with `firesteel stop JOB`, and continue it on another worker with
    `firesteel resume JOB`. An interrupted --wait changes nothing: the worker keeps draining.
    """
    drained = client.drain_worker(name)
    if wait:
        drained = _until_empty(client, drained)
    if as_json:
        echo_json(_json(drained))
    elif drained.attempts:
        click.echo(f"Worker {drained.name} gets no new jobs; {_left(drained)} there.")
    else:
        click.echo(f"Worker {drained.name} gets no new jobs, and nothing runs there.")
    return exit_codes.OK


def _until_empty(client: ClusterClient, drained: WorkerSummary) -> WorkerSummary:
    said = ""
    while drained.attempts:
        if not drained.draining:
            raise WorkerStateError(f"worker {drained.name} is no longer draining; it was undrained meanwhile")
        if (left := _left(drained)) != said:
            click.echo(f"{left} on {drained.name}", err=True)
            said = left
        time.sleep(POLL_SECONDS)
        drained = client.worker(drained.worker_id)
    return drained


def _left(w: WorkerSummary) -> str:
    run = "runs" if w.attempts == 1 else "run"
    return f"{count(w.attempts, 'attempt')} {run}"


@worker.command()
@click.argument("name")
@json_option
@_asking
def undrain(client: ClusterClient, name: str, as_json: bool) -> int:
    """Let worker NAME get jobs again."""
    undrained = client.undrain_worker(name)
    if as_json:
        echo_json(_json(undrained))
    else:
        click.echo(f"Worker {undrained.name} gets jobs again.")
    return exit_codes.OK


@worker.command()
@click.argument("name")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@json_option
@_asking
def lost(client: ClusterClient, name: str, yes: bool, as_json: bool) -> int:
    """Say that the host of worker NAME is gone: everything on it counts as ended.

    Its jobs start again on other workers. Say this only when it is certain that nothing runs there any more, because the
    machine is off or was deleted: a job that still runs there would run twice.
    """
    found = client.worker(name)
    if not yes:
        _confirm(found)
    declared = client.declare_worker_lost(found.worker_id)
    if as_json:
        echo_json(_json(declared))
    else:
        click.echo(f"Worker {declared.name} is lost; its jobs start again elsewhere, as their restart strategies say.")
    return exit_codes.OK


def _confirm(found: WorkerSummary) -> None:
    if not sys.stdin.isatty():
        raise FiresteelError(
            f"declaring worker {found.name} lost needs a confirmation, and there is no terminal to ask on; give --yes"
        )
    where = f" on {found.host}" if found.host and found.host != found.name else ""
    click.echo(
        f"Worker {found.name}{where} is {found.standing.lower()}, heard {_heard(found)}, with {_left(found)} there.\n"
        "If it is lost, everything on that host counts as ended, and its jobs start again elsewhere.\n"
        "Is the machine off or deleted, so that nothing can run there any more? A job that still runs would run twice.",
        err=True,
    )
    click.confirm(f"Declare {found.name} lost", abort=True, err=True)


@worker.command()
@click.argument("name")
@json_option
@_asking
def revoke(client: ClusterClient, name: str, as_json: bool) -> int:
    """Revoke the credential of worker NAME: it is let in no more.

    What runs there is not ended by this. To let the host in again, make a token with `firesteel worker token --name NAME`.
    """
    found = client.worker(name)
    client.revoke_worker(found.worker_id)
    if as_json:
        echo_json({"revoked": found.worker_id})
    else:
        click.echo(f"The credential of worker {found.name} ({found.worker_id}) is revoked.")
    return exit_codes.OK


# -- systemd --------------------------------------------------------------------------------------------------------


@worker.command()
@click.option("--name", help="What the worker is called; by default worker.name, or the name of the host.")
@click.option("--user", "account", metavar="USER", help="The user that the worker runs as; by default this one.")
@cluster_options
@configured
def unit(given: Given, line: ClusterOptions, name: str | None, account: str | None) -> int:
    """Print a systemd unit that runs the worker of this host for the cluster that -m names.

    Options given with -D and --config become part of its command. Write it to
    /etc/systemd/system/firesteel-worker.service. Let the worker join once before: a token has no place in a unit, which
    everybody may read.
    """
    text = systemd_unit(effective(given, line), program=_program(), account=account or this_user(), name=name)
    click.echo(text, nl=False)
    return exit_codes.OK


def systemd_unit(given: EffectiveConfiguration, *, program: str, account: str, name: str | None = None) -> str:
    """The text of the unit.

    KillMode=process: drivers and engines live in the control group of the worker, and outlive it. A restart of the worker must
    leave them alone.
    """
    command = [program, "worker", "start", "--foreground", *(["--name", name] if name else [])]
    if given.config_file is not None:
        command += ["--config", str(given.config_file.absolute())]
    for key, value in given.overrides.items():
        if any(o.secret and o.key == key for o in OPTIONS):
            raise FiresteelError(
                f"{key} is a secret, and everybody may read a unit; write it into the configuration file"
            )
        command.append(f"-D{key}={value}")
    lines = [
        "[Unit]",
        "Description=Firesteel worker",
        "Wants=network-online.target",
        "After=network-online.target",
        "# Without an end to attempts: a worker that cannot find its cluster keeps looking for it.",
        "StartLimitIntervalSec=0",
        "",
        "[Service]",
        "Type=exec",
        f"User={_quoted(account)}",
        f"ExecStart={' '.join(_quoted(word) for word in command)}",
        "Restart=always",
        "RestartSec=2s",
        "# Only the worker itself: drivers and engines run on, and the next worker process takes them over.",
        "KillMode=process",
        "OOMPolicy=continue",
        "LimitNOFILE=65536",
        "# Drivers and engines are its children, so there may be many.",
        "TasksMax=infinity",
        "",
        "[Install]",
        "WantedBy=multi-user.target",
    ]
    return "\n".join(lines) + "\n"


def _quoted(word: str) -> str:
    """As systemd reads words: a percent sign begins a specifier, a dollar sign a variable."""
    if any(not c.isprintable() for c in word):
        raise FiresteelError(f"{word!r} cannot stand in a unit")
    word = word.replace("%", "%%").replace("$", "$$")
    if word and not any(c in word for c in " \t\"'\\;"):
        return word
    escaped = word.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _program() -> str:
    """This command, by its whole path: systemd looks in few directories."""
    return str(Path(sys.argv[0]).resolve())
