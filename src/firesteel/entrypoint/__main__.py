"""`python -m firesteel.entrypoint`: one node of a session cluster, in the foreground."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from pathlib import Path

from firesteel.config import load_configuration
from firesteel.entrypoint.application_status import ApplicationStatus
from firesteel.entrypoint.cluster_entrypoint import ClusterEntrypoint
from firesteel.errors import FiresteelError


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m firesteel.entrypoint", description=__doc__)
    parser.add_argument("--config", type=Path, help="configuration file")
    parser.add_argument(
        "-D", dest="definitions", action="append", default=[], metavar="KEY=VALUE", help="set an option"
    )
    args = parser.parse_args(argv)
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)-7s %(name)s: %(message)s", stream=sys.stderr
    )
    try:
        overrides = dict(d.partition("=")[::2] for d in args.definitions)
        configuration = load_configuration(file=args.config, overrides=overrides)
    except FiresteelError as error:
        sys.stderr.write(f"error: {error}\n")
        return ApplicationStatus.START_FAILED.exit_code
    return asyncio.run(ClusterEntrypoint(configuration).run()).exit_code


if __name__ == "__main__":
    sys.exit(main())
