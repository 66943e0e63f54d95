"""Nodes on this machine: those that commands start, and the cluster that wakes up.

The cluster that wakes up is one node in the background that outlives the command, keeps its engine warm for the next one,
and goes to sleep when it has not been needed for `local-cluster.idle-timeout`. Its state is in the data directory, so it wakes
up as it was.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from firesteel.client.cluster import ClusterClient
from firesteel.client.discovery import LocalCluster, find_local, find_nodes, rest_file
from firesteel.client.errors import ClusterError
from firesteel.config.fingerprint import differing, fingerprint
from firesteel.deployment.effective import EffectiveConfiguration
from firesteel.durations import show_seconds
from firesteel.errors import FiresteelError, JobStateError
from firesteel.fs.files import private_dir, read_json, tail
from firesteel.fs.locks import exclusively
from firesteel.ha.identity import check as check_store
from firesteel.jobgraph.application import ApplicationConfiguration
from firesteel.layout import NODE_LOG
from firesteel.processes import ProcessIdentity

WAKE_SECONDS = 60.0
POLL_SECONDS = 0.02
_MOST_NODE_LOGS = 10


@dataclass(frozen=True, slots=True)
class StartedCluster:
    cluster: LocalCluster
    anew: bool
    """Whether this command woke it up."""


def awake(effective: EffectiveConfiguration) -> StartedCluster:
    """Return the cluster of this machine, awake, with the settings that the command was effective."""
    check_store(rest_file(effective.configuration).parent, effective.configuration)
    with one_at_a_time(effective):
        found = find_local(effective.configuration)
        if found is not None:
            theirs, mine = _settings_of(effective), fingerprint(effective.configuration)
            differences = differing(theirs, mine)
            if not (read_json(rest_file(effective.configuration)) or {}).get("woken"):
                # Spark settings of a cluster that was started with them are what its jobs have by default.
                differences = [k for k in differences if not k.startswith("spark.") or k in mine]
            if not differences:
                return StartedCluster(found, anew=False)
            _make_way(effective, found, differences, missing=[k for k in differences if k not in mine])
        return StartedCluster(start_node(effective, woken=True, extra={"rest.port": "0"}), anew=True)


def start_node(
    effective: EffectiveConfiguration,
    *,
    woken: bool,
    extra: Mapping[str, str] | None = None,
    application: ApplicationConfiguration | None = None,
    own_log: bool = False,
) -> LocalCluster:
    """Start a node in the background, and return once it serves. If it does not, raise FiresteelError with its output.

    Args:
        application: The program of an application cluster, which goes to the node with its settings: one that did not get
            all of it does not start.
        own_log: other nodes run here, one of which writes to the usual log.
    """
    directory = private_dir(rest_file(effective.configuration).parent)
    log = directory / (f"node-of-{os.getpid()}.log" if own_log else NODE_LOG)
    # -P: no module of the directory that a command happens to be given in becomes a part of the node (S45).
    command = [sys.executable, "-P", "-m", "firesteel.entrypoint"]
    if effective.config_file is not None:
        command += ["--config", str(effective.config_file.absolute())]
    # As arguments, settings that are secret would be there for all to see (S27).
    command += ["--log", str(directory / "node-{pid}.log" if own_log else log)]
    definitions: dict[str, Any] = {**effective.overrides, **(extra or {})}
    if application is None:
        command.append("--definitions-from-stdin")
    else:
        command.append("--application-from-stdin")
        definitions = {"definitions": definitions, "application": application.to_json()}
    if woken:
        command.append("--woken")
    with log.open("ab") as output:
        begin = output.tell()
        child = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    if own_log:
        log = log.rename(directory / f"node-{child.pid}.log")
        _remove_old_logs(directory)
    assert child.stdin is not None
    with contextlib.suppress(BrokenPipeError), child.stdin as pipe:
        pipe.write(json.dumps(definitions).encode())
    deadline = time.monotonic() + WAKE_SECONDS
    while time.monotonic() < deadline:
        for found in find_nodes(effective.configuration):
            if found.process.pid == child.pid:
                child.returncode = 0  # it outlives us by design
                return found
        if child.poll() is not None:
            raise FiresteelError(f"the cluster did not start:\n{_since(log, begin)}")
        time.sleep(POLL_SECONDS)
    child.kill()
    child.wait()
    raise FiresteelError(f"the cluster did not start within {show_seconds(WAKE_SECONDS)}:\n{_since(log, begin)}")


def end_with_jobs(client: ClusterClient) -> None:
    """Cancel every job of a cluster, wait for their ends, and end the leader."""
    running = [client.job(j.job_id) for j in client.jobs() if not j.status.terminal]
    for job in running:
        with contextlib.suppress(JobStateError):  # it has just ended by itself
            job.cancel()
    for job in running:
        job.wait()
    client.shut_down()


def wait_for_end(node: LocalCluster) -> None:
    """Raises FiresteelError when the process of a node that was asked to end is still there after a minute."""
    if not node.process.wait(WAKE_SECONDS):
        raise FiresteelError(
            f"the node at {node.address} (process {node.process.pid}) was asked to end, and is still running after "
            f"{show_seconds(WAKE_SECONDS)}; if another node led, try again, otherwise see its log"
        )


def usable_directory(effective: EffectiveConfiguration) -> Path:
    """The directory of the cluster, made if need be. Raises FiresteelError."""
    try:
        return private_dir(rest_file(effective.configuration).parent)
    except OSError as error:
        raise FiresteelError(
            f"cannot use the data directory {effective.configuration.data.dir}: {error.strerror or error} "
            f"('{error.filename}') — check its permissions, or choose another one with data.dir or FIRESTEEL_DATA_DIR"
        ) from error


def node_log(directory: Path, pid: int) -> Path:
    """The log of the node whose process is `pid`."""
    own = directory / f"node-{pid}.log"
    return own if own.exists() else directory / NODE_LOG


def _remove_old_logs(directory: Path) -> None:
    """Remove the logs of nodes that are gone, except for the last few."""
    logs = sorted(directory.glob("node-*.log"), key=lambda f: f.stat().st_mtime)
    for log in logs[:-_MOST_NODE_LOGS]:
        if ProcessIdentity.of(int("".join(filter(str.isdigit, log.stem)) or 0)) is None:
            log.unlink(missing_ok=True)


def check_settings(effective: EffectiveConfiguration) -> None:
    """Raise FiresteelError unless the settings are those of the cluster's other nodes."""
    if differences := differing(_settings_of(effective), fingerprint(effective.configuration)):
        shown = ", ".join(differences[:5]) + (" …" if len(differences) > 5 else "")
        raise FiresteelError(
            f"the cluster that runs here was started with other settings ({shown}); start every node with the same -D "
            "options, environment and configuration file"
        )


def _settings_of(effective: EffectiveConfiguration) -> dict[str, str]:
    data = read_json(rest_file(effective.configuration)) or {}
    settings = data.get("settings")
    return settings if isinstance(settings, dict) else {}


def _make_way(
    effective: EffectiveConfiguration, found: LocalCluster, differences: list[str], *, missing: list[str]
) -> None:
    """Put an idle cluster to sleep that was woken up with other settings. One that is busy or was started stays.

    `missing` are the differences that the cluster has and this command does not.
    """
    data = read_json(rest_file(effective.configuration)) or {}
    shown = ", ".join(differences[:5]) + (" …" if len(differences) > 5 else "")
    cures = []
    if given_here := [k for k in differences if k not in missing]:
        cures.append(f"omit {', '.join(given_here[:5])} or use the values that it was started with")
    if missing:
        cures.append(
            f"set {', '.join(missing[:5])} for this command as well, with -D or in a configuration file that both read"
        )
    how = f"{' and '.join(cures)}, stop it with `firesteel cluster stop`, or use another high-availability.cluster-id"
    if not data.get("woken"):
        raise FiresteelError(f"the cluster that runs here was started with other settings ({shown}); {how}")
    with contextlib.suppress(ClusterError, OSError), ClusterClient(found.address, token=found.token) as client:
        running = [j for j in client.jobs() if not j.status.terminal]
        if running:
            raise FiresteelError(
                f"the cluster that is awake here was woken up with other settings ({shown}), and {len(running)} of its "
                f"jobs are still running; wait for them, or {how}"
            )
        client.shut_down()
    if not found.process.wait(WAKE_SECONDS):
        raise FiresteelError(
            f"the cluster that was awake here (process {found.process.pid}) did not end; kill the process"
        )


def _since(log: Path, begin: int) -> str:
    try:
        with log.open("rb") as f:
            f.seek(begin)
            text = f.read(1 << 16).decode(errors="replace").strip()
    except OSError:
        text = ""
    return text or tail(log, 10)


@contextlib.contextmanager
def one_at_a_time(effective: EffectiveConfiguration) -> Iterator[None]:
    """Hold a lock, so that two commands at once wake up only one cluster."""
    directory = usable_directory(effective)
    with exclusively(directory / "wake.lock"):
        yield
