"""`firesteel worker start` starts the worker of this host, which runs jobs for a cluster elsewhere."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn
from urllib.parse import urlsplit

import click

from firesteel.cli import exit_codes
from firesteel.cli.command_line import cluster_options, effective
from firesteel.cli.custom_command_lines import ClusterOptions
from firesteel.cli.options import Given, configured, json_option
from firesteel.cli.tables import echo_json
from firesteel.client.discovery import connect, find_nodes, rest_file
from firesteel.config import Configuration, load_configuration
from firesteel.config.loader import WORKER_TOKEN_VARIABLE
from firesteel.errors import FiresteelError
from firesteel.fs.files import private_dir, read_json, tail
from firesteel.fs.locks import exclusively
from firesteel.hosts import this_host
from firesteel.ip_addresses import is_loopback
from firesteel.layout import ClusterLayout
from firesteel.processes import ProcessIdentity
from firesteel.worker.credential import WorkerCredential, join, keep, load_credential, new_credential
from firesteel.worker.identity import worker_id
from firesteel.worker.process import http_client
from firesteel.worker.running import running_worker

START_SECONDS = 60.0
POLL_SECONDS = 0.05
LOG = "worker.log"


@dataclass(frozen=True, slots=True)
class _Worker:
    configuration: Configuration
    definitions: Mapping[str, str]
    name: str
    addresses: Sequence[str]

    @property
    def home(self) -> Path:
        return ClusterLayout.of(self.configuration).home

    @property
    def log(self) -> Path:
        return self.home / LOG


@click.command()
@click.option("--name", help="What the worker is called; by default worker.name, or the name of this host.")
@click.option(
    "--token",
    help=(
        f"A join token of `firesteel worker token`, needed once. It is better kept in {WORKER_TOKEN_VARIABLE}, where other "
        "users do not see it."
    ),
)
@click.option("--foreground", is_flag=True, help="Run in this process, log to standard error, until a signal ends it.")
@json_option
@cluster_options
@configured
def start(
    given: Given, line: ClusterOptions, name: str | None, token: str | None, foreground: bool, as_json: bool
) -> int:
    """Start the worker of this host. Jobs of the cluster that -m names then run here too.

    The worker joins the cluster with a one-time token and keeps a credential of its own. On the machine of a node, the user
    who runs the node needs no token. Stopping the worker does not stop what runs here: the next start takes it over.
    """
    given = effective(given, line)
    worker = _worker(given, name)
    private_dir(worker.home)
    with exclusively(worker.home / "start.lock"):
        if (process := running_worker(worker.home)) is not None:
            return _say(worker, process, as_json, started=False)
        _join(given, worker, token or os.environ.get(WORKER_TOKEN_VARIABLE) or None)
        if foreground:
            _become(given, worker)
        process = _start(given, worker)
    return _say(worker, process, as_json, started=True)


def _worker(given: Given, name: str | None) -> _Worker:
    """The worker's own configuration: it shares no directory with a node, or another worker, of this machine."""
    configuration = given.configuration
    name = name or configuration.worker.name or this_host().name
    addresses = list(configuration.client.addresses) or [node.address for node in find_nodes(configuration)]
    if not addresses:
        raise FiresteelError(
            "there is no cluster on this machine; say where one is: `firesteel worker start -m https://host:8081 --token ...`"
        )
    for address in addresses:
        if address.startswith("http:") and not is_loopback(urlsplit(address).hostname or ""):
            raise FiresteelError(
                f"a worker does not send its credential to {address} in plain text; give the node's https address, and "
                "-Dclient.ssl.ca if its certificate is signed by an authority of yours"
            )
    definitions = {
        **given.overrides,
        "data.dir": str(configuration.data.dir / "workers" / name),
        "data.cache-dir": str(configuration.data.cache_dir),
        "client.addresses": " ".join(addresses),
        "worker.name": name,
    }
    return _Worker(load_configuration(file=given.config_file, overrides=definitions), definitions, name, addresses)


def _join(given: Given, worker: _Worker, token: str | None) -> None:
    if load_credential(worker.home) is not None and token is None:
        return
    if token is None:
        if given.configuration.client.addresses:
            raise FiresteelError(
                f"worker {worker.name} has not joined the cluster yet: make a token with `firesteel worker token` where you "
                f"may, and start the worker with --token or {WORKER_TOKEN_VARIABLE}"
            )
        with connect(given.configuration) as client:
            token = client.worker_token(worker.name).token
    credential = new_credential(worker.home, worker_id(worker.home), worker.name)
    asyncio.run(_join_with(worker, token, credential))


async def _join_with(worker: _Worker, token: str, credential: WorkerCredential) -> None:
    async with http_client(worker.configuration) as client:
        await join(client, worker.addresses, token, credential)
    keep(worker.home, credential)


def _command(given: Given) -> list[str]:
    # -P: no module of the directory that a command happens to be given in becomes a part of the worker (S45).
    command = [sys.executable, "-P", "-m", "firesteel.worker"]
    if not given.configuration.client.addresses:
        command += ["--nodes-file", str(rest_file(given.configuration))]
    return [*command, "--config", str(given.config_file.absolute())] if given.config_file is not None else command


def _become(given: Given, worker: _Worker) -> NoReturn:
    with tempfile.TemporaryFile() as definitions:
        definitions.write(json.dumps(worker.definitions).encode())
        definitions.seek(0)
        os.dup2(definitions.fileno(), 0)
    sys.stdout.flush()
    os.execv(sys.executable, _command(given))  # noqa: S606 - an argv array, no shell


def _start(given: Given, worker: _Worker) -> ProcessIdentity:
    with worker.log.open("ab") as output:
        child = subprocess.Popen(
            [*_command(given), "--log", str(worker.log)],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    assert child.stdin is not None
    with child.stdin as pipe:
        pipe.write(json.dumps(worker.definitions).encode())
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        process = running_worker(worker.home)
        if process is not None and process.pid == child.pid:
            child.returncode = 0  # it outlives us by design
            return process
        if child.poll() is not None:
            raise FiresteelError(f"the worker did not start:\n{tail(worker.log, lines=10)}")
        time.sleep(POLL_SECONDS)
    child.terminate()
    raise FiresteelError(
        f"the worker was not taken by a leader within {START_SECONDS:g} s:\n{tail(worker.log, lines=10)}"
    )


def _say(worker: _Worker, process: ProcessIdentity, as_json: bool, *, started: bool) -> int:
    registered = read_json(worker.home / "running.json") or {}
    if as_json:
        facts = {"name": worker.name, "id": worker_id(worker.home), "pid": process.pid, "log": str(worker.log)}
        echo_json({**facts, "epoch": registered.get("epoch"), "started": started})
        return exit_codes.OK
    verb = "runs" if started else "is already running"
    click.echo(f"Worker {worker.name} {verb} (process {process.pid}) for the cluster at {worker.addresses[0]}.")
    click.echo(f"  log                     {worker.log}")
    click.echo("  firesteel worker list   lists the workers of the cluster")
    click.echo(f"  kill {process.pid:<18} ends this process; what runs here runs on, and the next start takes it over")
    return exit_codes.OK
