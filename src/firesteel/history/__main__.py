"""`python -m firesteel.history`: a history server, in the foreground."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import signal
import sys
from pathlib import Path

from firesteel.config import Configuration, load_configuration
from firesteel.entrypoint.application_status import ApplicationStatus
from firesteel.entrypoint.settings import settings_from_stdin
from firesteel.errors import FiresteelError
from firesteel.node_log import log_as, log_to


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m firesteel.history", description=__doc__)
    parser.add_argument("--config", type=Path, help="configuration file")
    parser.add_argument("--definitions-from-stdin", action="store_true", help="read options as a JSON object")
    args = parser.parse_args(argv)
    log_to(None)
    try:
        overrides = settings_from_stdin() if args.definitions_from_stdin else {}
        configuration = load_configuration(file=args.config, overrides=overrides)
        log_as(configuration.logging.format)
        asyncio.run(serve(configuration))
    except FiresteelError as error:
        logging.getLogger(__name__).debug("the history server did not start", exc_info=True)
        sys.stderr.write(f"error: {error}\n")
        return ApplicationStatus.START_FAILED.exit_code
    return ApplicationStatus.SUCCEEDED.exit_code


async def serve(configuration: Configuration) -> None:
    from firesteel.history.server import HistoryServer  # slow; errors above come at once

    over = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, over.set)
    server = HistoryServer(configuration)
    with contextlib.suppress(OSError):
        os.chdir(server.directory)  # the caller's directory does not matter (S45)
    async with server.open() as address:
        sys.stdout.write(f"The history of {server.described} is served at {address}.\n")
        sys.stdout.flush()
        await over.wait()


if __name__ == "__main__":
    sys.exit(main())
