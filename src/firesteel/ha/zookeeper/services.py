"""Opening the backend `zookeeper`: the configuration is checked before any connection is made."""

from __future__ import annotations

import asyncio
import importlib.util
import re
from typing import TYPE_CHECKING

from firesteel.config.high_availability import ZooKeeperAcl, ZooKeeperOptions, ZooKeeperSaslMechanism
from firesteel.config.loader import Configuration
from firesteel.errors import InvalidConfigError, Problem
from firesteel.ha.zookeeper.tls import tls_context
from firesteel.ip_addresses import is_loopback

if TYPE_CHECKING:  # it imports kazoo, which may not be installed
    from firesteel.ha.zookeeper.backend import ZooKeeperHighAvailabilityServices

_PREFIX = "high-availability.zookeeper"
_HOST = re.compile(r"(?:[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\])(?::([0-9]{1,5}))?")


async def open_zookeeper(configuration: Configuration) -> ZooKeeperHighAvailabilityServices:
    """Open the backend; the caller closes it. Raises like ZooKeeperHighAvailabilityServices.open."""
    options = configuration.zookeeper
    # In a thread, as it reads files.
    if problems := await asyncio.to_thread(check, options, configuration.high_availability.storage_dir):
        raise InvalidConfigError(problems)
    from firesteel.ha.zookeeper.backend import ZooKeeperHighAvailabilityServices

    return await ZooKeeperHighAvailabilityServices.open(
        options,
        hosts_of(options.quorum or ""),
        cluster_id=configuration.high_availability.cluster_id,
        storage_dir=configuration.high_availability.storage_dir,
    )


def check(options: ZooKeeperOptions, storage_dir: str | None) -> list[Problem]:
    """All problems of the options that can be found without a server."""
    problems = [*_check_library(options), *_check_quorum(options), *_check_credentials(options), *_check_tls(options)]
    if not storage_dir:
        fix = "set it to a directory or a URL that every node of the cluster reaches"
        problems.append(
            Problem("is not set, but values too large for ZooKeeper need it", fix, field="high-availability.storageDir")
        )
    return problems


def hosts_of(quorum: str) -> str:
    """The servers in kazoo's form: `host:port`, separated by commas. Raises ValueError."""
    hosts = []
    for text in quorum.split(","):
        found = _HOST.fullmatch(text.strip())
        if not found or not 1 <= int(found[1] or 2181) <= 65535:
            raise ValueError(text.strip())
        hosts.append(text.strip() if found[1] else f"{text.strip()}:2181")
    return ",".join(hosts)


def _check_library(options: ZooKeeperOptions) -> list[Problem]:
    fix = 'run: pip install "firesteel[zookeeper]"'
    if importlib.util.find_spec("kazoo") is None:
        return [
            Problem("zookeeper needs the package kazoo, which is not installed", fix, field="high-availability.type")
        ]
    if options.sasl_mechanism is not ZooKeeperSaslMechanism.NONE and importlib.util.find_spec("puresasl") is None:
        fix = "run: pip install pure-sasl"
        return [Problem("needs the package pure-sasl, which is not installed", fix, field=f"{_PREFIX}.sasl.mechanism")]
    return []


def _check_quorum(options: ZooKeeperOptions) -> list[Problem]:
    fix = "write the servers as host:port,host:port,..."
    if not options.quorum:
        return [Problem("is not set", fix, field=f"{_PREFIX}.quorum")]
    try:
        hosts_of(options.quorum)
    except ValueError as error:
        if "/" in options.quorum:
            fix += f", and a path in {_PREFIX}.path.root"
        return [Problem(f"'{error}' is not a host and a port", fix, field=f"{_PREFIX}.quorum")]
    return []


def _check_credentials(options: ZooKeeperOptions) -> list[Problem]:
    problems = []
    sasl = options.sasl_mechanism is not ZooKeeperSaslMechanism.NONE
    if options.auth is not None and not re.fullmatch(r"[^:]+:.+", options.auth):
        problems.append(Problem("is not a user and a password", "write user:password", field=f"{_PREFIX}.client.auth"))
    if sasl:
        for value, key in ((options.sasl_username, "username"), (options.sasl_password, "password")):
            if not value:
                problems.append(Problem("is not set", "set it, or unset sasl.mechanism", field=f"{_PREFIX}.sasl.{key}"))
    if options.acl is ZooKeeperAcl.CREATOR and not sasl and not options.auth:
        fix = f"set {_PREFIX}.client.auth or {_PREFIX}.sasl.mechanism"
        problems.append(Problem("`creator` needs credentials", fix, field=f"{_PREFIX}.client.acl"))
    if options.acl is ZooKeeperAcl.OPEN and not _is_loopback(options.quorum or ""):
        # Anyone who can reach the ensemble could read the key with which nodes vouch for callers (S31).
        fix = f"set it to creator, with {_PREFIX}.client.auth or {_PREFIX}.sasl.mechanism"
        problems.append(
            Problem(
                "`open` is only allowed for an ensemble on this machine, and this one can be reached from others",
                fix,
                field=f"{_PREFIX}.client.acl",
            )
        )
    return problems


def _is_loopback(quorum: str) -> bool:
    """Whether only this machine can reach the servers. Malformed addresses are reported elsewhere."""
    try:
        hosts = [host.rpartition(":")[0].strip("[]") for host in hosts_of(quorum).split(",")]
    except ValueError:
        return True
    return all(is_loopback(host) for host in hosts)


def _check_tls(options: ZooKeeperOptions) -> list[Problem]:
    problems = []
    files = {"ca": options.ssl_ca, "certificate": options.ssl_certificate, "key": options.ssl_key}
    for key, path in files.items():
        if path is None:
            continue
        if not options.ssl_enabled:
            fix = f"set {_PREFIX}.ssl.enabled to true"
            problems.append(Problem("is set, but TLS is not enabled", fix, field=f"{_PREFIX}.ssl.{key}"))
        elif not path.is_file():
            problems.append(Problem(f"no such file: {path}", "name a PEM file", field=f"{_PREFIX}.ssl.{key}"))
    if (options.ssl_certificate is None) != (options.ssl_key is None):
        missing = "key" if options.ssl_key is None else "certificate"
        problems.append(Problem("is not set", "set both the certificate and its key", field=f"{_PREFIX}.ssl.{missing}"))
    if not problems:
        try:
            tls_context(options)
        except OSError as error:
            fix = "name PEM files of a certificate and its key, and set the key's password in ssl.key-password"
            problems.append(Problem(f"cannot be used: {error.strerror or error}", fix, field=f"{_PREFIX}.ssl.*"))
    return problems
