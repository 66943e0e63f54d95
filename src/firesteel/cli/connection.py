"""The connection of a command: which cluster it talks to."""

from __future__ import annotations

import contextlib
import difflib
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import click

from firesteel.cli.local_cluster import awake
from firesteel.cli.options import Given, configured
from firesteel.cli.tables import printable
from firesteel.client.cluster import ClusterClient
from firesteel.client.discovery import connect, find_local
from firesteel.client.job import JobClient
from firesteel.client.model import JobSummary
from firesteel.config import load_configuration
from firesteel.errors import JobNotFoundError
from firesteel.types import JobID, is_job_id


@dataclass(frozen=True, slots=True)
class Connection:
    given: Given
    client: ClusterClient
    local: bool
    """The cluster runs on this machine, under this user: it sees the same files."""

    def job(self, text: str) -> JobClient:
        """Find the job whose id begins with `text`, or whose name it is. Of several, take the newest and say so."""
        if is_job_id(text.lower()):
            return self.client.job(text.lower())
        return self.client.job(choose(text, self.client.jobs()))

    @property
    def option(self) -> str:
        """The option with which a command that we suggest reaches the same cluster: ` -m ADDRESS`, or nothing."""
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


address_option = click.option(
    "-m",
    "--jobmanager",
    "address",
    metavar="ADDRESS",
    help="Cluster to talk to: host:port or a URL; separate several with commas.",
)


def connected(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `-m`, `-D` and `--config`; it receives `cluster`, a Connection.

    Without `-m` and without `client.addresses` it is the cluster of this machine, which is woken up if need be.
    """

    @address_option
    @configured
    @functools.wraps(function)
    def wrapper(given: Given, address: str | None, **rest: Any) -> Any:
        with open_connection(given, address) as cluster:
            return function(cluster=cluster, **rest)

    return wrapper


@contextlib.contextmanager
def open_connection(given: Given, address: str | None = None) -> Iterator[Connection]:
    given = addressed(given, address)
    local = not given.configuration.client.addresses
    if local:
        awake(given)
    with connect(given.configuration) as client:
        yield Connection(given, client, local)


def is_awake(given: Given) -> bool:
    return bool(given.configuration.client.addresses) or find_local(given.configuration) is not None


def addressed(given: Given, text: str | None) -> Given:
    """Let `-m`, if given, override every other address: `host:port` as Flink's users write it, or URLs."""
    if text is None:
        return given
    tls = given.configuration.security.ssl_enabled or given.configuration.client.ca is not None
    words = [w.strip() for w in text.split(",") if w.strip()]
    urls = [w if "://" in w else f"{'https' if tls else 'http'}://{w}" for w in words]
    overrides = {**given.overrides, "client.addresses": " ".join(urls)}
    configuration = load_configuration(file=given.config_file, overrides=overrides)
    return Given(configuration, overrides, given.variables, given.config_file)
