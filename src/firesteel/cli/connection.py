"""The connection of a command: which cluster it talks to."""

from __future__ import annotations

import contextlib
import difflib
import functools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import click

from firesteel.cli.custom_command_lines import ClusterOptions, effective
from firesteel.cli.options import Given, configured
from firesteel.cli.tables import printable
from firesteel.client.cluster import ClusterClient
from firesteel.client.errors import ClusterUnreachableError
from firesteel.client.job import JobClient
from firesteel.client.model import JobSummary
from firesteel.deployment.descriptors import ClusterSpecification
from firesteel.deployment.loader import ClusterClientServiceLoader
from firesteel.deployment.local import LOCAL
from firesteel.deployment.standalone import REMOTE
from firesteel.errors import JobNotFoundError
from firesteel.types import JobID, is_job_id


@dataclass(frozen=True, slots=True)
class Connection:
    given: Given
    client: ClusterClient
    local: bool
    """The cluster runs on this machine, under this user: it sees the same files."""
    starting: float = 0.0
    """The seconds that this command spent on starting the cluster; 0 when it was there."""

    def job(self, text: str) -> JobClient:
        """Find the job whose id begins with `text`, or whose name it is. Of several, take the newest and say so."""
        if is_job_id(text.lower()):
            return self.client.job(text.lower())
        return self.client.job(choose(text, self.client.jobs()))

    @property
    def option(self) -> str:
        """The options with which a command that we suggest reaches the same cluster: ` -m ADDRESS`, or nothing."""
        if self.given.overrides.get("execution.target", LOCAL) not in (LOCAL, REMOTE):
            configuration = self.given.configuration
            return (
                f" -t {configuration.execution.target}"
                f" -Dhigh-availability.cluster-id={configuration.high_availability.cluster_id}"
            )
        given = self.given.overrides.get("client.addresses", "")
        return f" -m {','.join(a.removeprefix('http://') for a in given.split())}" if given else ""


def choose(text: str, jobs: Sequence[JobSummary]) -> JobID:
    """Which of `jobs` is meant by `text`: the first digits of an id, or a name. Raises JobNotFoundError."""
    begun = [j.job_id for j in jobs if text and j.job_id.startswith(text.lower())]
    named = sorted((j for j in jobs if j.name == text), key=lambda j: (j.started_at, j.job_id))
    shows = "`firesteel list -a` lists all jobs"
    if named and begun and {j.job_id for j in named} != set(begun):
        raise JobNotFoundError(
            f"'{text}' is the name of job {named[-1].job_id} and the beginning of {begun[0]}; give more digits of "
            f"the one you mean; {shows}"
        )
    if named:
        if len(named) > 1:
            newest = f"{named[-1].job_id} ({named[-1].status.value})"
            click.echo(f"{len(named)} jobs are called '{text}'; the newest is {newest}", err=True)
        return named[-1].job_id
    if len(begun) == 1:
        return begun[0]
    if begun:
        raise JobNotFoundError(f"{len(begun)} job ids begin with '{text}'; give more digits; {shows}")
    near = difflib.get_close_matches(text, {j.name for j in jobs}, n=1)
    hint = f"did you mean '{printable(near[0])}'?" if near else shows
    raise JobNotFoundError(f"no such job: '{text}'; {hint}")


def cluster_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `-t` and `-m`; it receives `line`, a ClusterOptions."""

    @click.option(
        "-t",
        "--target",
        "cluster_target",
        metavar="TARGET",
        help="Kind of cluster: local, remote, standalone-application; the same as -Dexecution.target.",
    )
    @click.option(
        "-m",
        "--jobmanager",
        "address",
        metavar="ADDRESS",
        help="Cluster to talk to: host:port or a URL; separate several with commas.",
    )
    @functools.wraps(function)
    def wrapper(cluster_target: str | None, address: str | None, **rest: Any) -> Any:
        return function(line=ClusterOptions(cluster_target, address), **rest)

    return wrapper


def connected(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `-t`, `-m`, `-D` and `--config`; it receives `cluster`, a Connection.

    Without any of them it is the cluster of this machine, which is woken up if need be.
    """

    @cluster_options
    @configured
    @functools.wraps(function)
    def wrapper(given: Given, line: ClusterOptions, **rest: Any) -> Any:
        with open_connection(effective(given, line)) as cluster:
            return function(cluster=cluster, **rest)

    return wrapper


@contextlib.contextmanager
def open_connection(given: Given, *, as_it_is: bool = False) -> Iterator[Connection]:
    """Connect to the cluster that the configuration means, which is deployed if need be.

    Args:
        as_it_is: One that runs will do whatever its settings are: they matter to commands that run something.
    """
    given = effective(given)
    began = time.monotonic()
    factory = ClusterClientServiceLoader().factory_for(given.configuration)
    descriptor = factory.descriptor(given)
    cluster_id = None if factory.deploys_sessions and not as_it_is else factory.cluster_id(given.configuration)
    if cluster_id is not None:
        provider = descriptor.retrieve(cluster_id)
    elif factory.deploys_sessions:
        provider = descriptor.deploy_session(ClusterSpecification.of(given.configuration))
    else:
        raise ClusterUnreachableError(absence(given))
    starting = time.monotonic() - began if provider.anew else 0.0
    with provider.connect() as client:
        yield Connection(given, client, provider.shares_files, starting)


def absence(given: Given) -> str:
    """What is said when a cluster has to be there, and is not."""
    configuration = given.configuration
    where = f"cluster {configuration.high_availability.cluster_id}, data directory {configuration.data.dir}"
    if configuration.execution.target == REMOTE:
        return "the target 'remote' needs the address of a node: give it with -m or client.addresses"
    if configuration.execution.target == LOCAL:
        return "no cluster is running here; give the address of another one with -m"
    return (
        f"no cluster of the target '{configuration.execution.target}' is running ({where}); "
        "name it with -Dhigh-availability.cluster-id"
    )


@contextlib.contextmanager
def retrieved(given: Given) -> Iterator[ClusterClient]:
    """A client of the cluster that the configuration means; nothing is deployed. Raises ClusterUnreachableError."""
    given = effective(given)
    factory = ClusterClientServiceLoader().factory_for(given.configuration)
    cluster_id = factory.cluster_id(given.configuration)
    if cluster_id is None:
        raise ClusterUnreachableError(absence(given))
    with factory.descriptor(given).retrieve(cluster_id).connect() as client:
        yield client


def is_awake(given: Given) -> bool:
    """Whether the cluster that the configuration means is there, as far as that can be told without asking it."""
    given = effective(given)
    return ClusterClientServiceLoader().factory_for(given.configuration).cluster_id(given.configuration) is not None
