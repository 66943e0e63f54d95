"""Which cluster a command talks to."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import click

from firesteel.cli.local_cluster import awake
from firesteel.cli.options import Given, configured
from firesteel.client.cluster import ClusterClient
from firesteel.client.discovery import connect, find_local
from firesteel.client.job import JobClient
from firesteel.config import load_configuration
from firesteel.errors import JobNotFoundError
from firesteel.types import is_job_id


@dataclass(frozen=True, slots=True)
class Connection:
    given: Given
    client: ClusterClient
    local: bool
    """The cluster runs on this machine, under this user: it sees the same files."""

    def job(self, text: str) -> JobClient:
        """The job whose id is `text` or begins with it, as people type it."""
        text = text.lower()
        if is_job_id(text):
            return self.client.job(text)
        found = [j.job_id for j in self.client.jobs() if text and j.job_id.startswith(text)]
        if len(found) != 1:
            what = f"{len(found)} jobs begin with '{text}'; give more digits" if found else f"no job {text} here"
            raise JobNotFoundError(f"{what}; `firesteel list -a` shows those there are")
        return self.client.job(found[0])


def connected(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `-m`, `-D` and `--config`; it receives `cluster`, a Connection.

    Without `-m` and without `client.addresses` it is the cluster of this machine, which is woken up if need be.
    """

    @click.option(
        "-m",
        "--jobmanager",
        "address",
        metavar="ADDRESS",
        help="Cluster to talk to: host:port or a URL, several with commas.",
    )
    @configured
    @functools.wraps(function)
    def wrapper(given: Given, address: str | None, **rest: Any) -> Any:
        with open_connection(given, address) as cluster:
            return function(cluster=cluster, **rest)

    return wrapper


@contextlib.contextmanager
def open_connection(given: Given, address: str | None = None) -> Iterator[Connection]:
    if address is not None:
        given = with_addresses(given, address)
    local = not given.configuration.client.addresses
    if local:
        awake(given)
    with connect(given.configuration) as client:
        yield Connection(given, client, local)


def is_awake(given: Given) -> bool:
    return bool(given.configuration.client.addresses) or find_local(given.configuration) is not None


def with_addresses(given: Given, text: str) -> Given:
    """`-m` over everything else: `host:port` as Flink's users write it, or URLs."""
    tls = given.configuration.security.ssl_enabled or given.configuration.client.ca is not None
    words = [w.strip() for w in text.split(",") if w.strip()]
    urls = [w if "://" in w else f"{'https' if tls else 'http'}://{w}" for w in words]
    overrides = {**given.overrides, "client.addresses": " ".join(urls)}
    configuration = load_configuration(file=given.config_file, overrides=overrides)
    return Given(configuration, overrides, given.variables, given.config_file)
