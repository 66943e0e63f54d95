"""`python -m firesteel.entrypoint` runs one node of a cluster in the foreground."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import sys
from pathlib import Path

from firesteel.config import load_configuration
from firesteel.entrypoint.application_status import ApplicationStatus
from firesteel.entrypoint.settings import object_from_stdin, settings_from_stdin, texts
from firesteel.errors import FiresteelError
from firesteel.fs.files import private_dir
from firesteel.jobgraph.application import ApplicationConfiguration
from firesteel.layout import ClusterLayout
from firesteel.node_log import log_as, log_to

PID = "{pid}"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m firesteel.entrypoint", description=__doc__)
    parser.add_argument("--config", type=Path, help="configuration file")
    parser.add_argument(
        "-D", dest="definitions", action="append", default=[], metavar="KEY=VALUE", help="set an option"
    )
    parser.add_argument("--definitions-from-stdin", action="store_true", help="read options as a JSON object")
    parser.add_argument(
        "--application-from-stdin",
        action="store_true",
        help="the first node of an application cluster: read a JSON object with `definitions` and `application`",
    )
    parser.add_argument("--woken", action="store_true", help="end when the node is idle (local-cluster.idle-timeout)")
    parser.add_argument(
        "--log",
        type=Path,
        metavar="FILE",
        help=f"write the log to FILE ({PID} stands for the process id)",
    )
    args = parser.parse_args(argv)
    log_to(Path(str(args.log).replace(PID, str(os.getpid()))) if args.log else None)
    # A line for each request that is forwarded to the leader would fill the disk.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        overrides = dict(d.partition("=")[::2] for d in args.definitions)
        application: ApplicationConfiguration | None = None
        if args.application_from_stdin:
            definitions, application = _application_from_stdin()
            overrides |= definitions
        elif args.definitions_from_stdin:
            overrides |= settings_from_stdin()
        configuration = load_configuration(file=args.config, overrides=overrides)
    except FiresteelError as error:
        sys.stderr.write(f"error: {error}\n")
        return ApplicationStatus.START_FAILED.exit_code
    log_as(configuration.logging.format)
    with contextlib.suppress(OSError):  # the start of the node reports a directory that cannot be made
        # The caller's directory does not matter any more: all paths of the configuration are absolute by now (S45).
        os.chdir(private_dir(ClusterLayout.of(configuration).home))
    from firesteel.entrypoint.cluster_entrypoint import ClusterEntrypoint  # slow; errors above come at once

    entrypoint = ClusterEntrypoint(configuration, rest=True, woken=args.woken, application=application)
    return asyncio.run(entrypoint.run()).exit_code


def _application_from_stdin() -> tuple[dict[str, str], ApplicationConfiguration]:
    found = object_from_stdin()
    try:
        return texts(found["definitions"]), ApplicationConfiguration.from_json(found["application"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FiresteelError(f"standard input does not hold an application: {error}") from error


if __name__ == "__main__":
    sys.exit(main())
