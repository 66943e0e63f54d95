"""`python -m firesteel.worker`: one worker, in the foreground. `firesteel worker start` runs it."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import sys
from pathlib import Path

from firesteel.config import load_configuration
from firesteel.errors import FiresteelError
from firesteel.fs.files import private_dir
from firesteel.layout import ClusterLayout
from firesteel.node_log import log_as, log_to
from firesteel.worker.credential import load_credential


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m firesteel.worker", description=__doc__)
    parser.add_argument("--config", type=Path, help="configuration file")
    parser.add_argument("--log", type=Path, metavar="FILE", help="write the log here")
    parser.add_argument("--nodes-file", type=Path, metavar="FILE", help="how nodes of this machine are reached")
    args = parser.parse_args(argv)
    log_to(args.log)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        configuration = load_configuration(file=args.config, overrides=_definitions())
        home = private_dir(ClusterLayout.of(configuration).home)
        credential = load_credential(home)
        if credential is None:
            raise FiresteelError("this worker has joined no cluster; start it with `firesteel worker start --token`")
    except (FiresteelError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    log_as(configuration.logging.format)
    os.chdir(home)  # nothing is looked for where a command was given (S45)
    from firesteel.worker.process import WorkerProcess  # a second that a refusal need not take

    try:
        return asyncio.run(WorkerProcess(configuration, credential, args.nodes_file).run())
    except (FiresteelError, OSError) as error:
        logging.getLogger(__name__).critical("%s", error)
        return 1


def _definitions() -> dict[str, str]:
    """From standard input, as arguments are there for all to see (S27)."""
    try:
        found = json.loads(sys.stdin.read())
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise FiresteelError("no settings came from standard input; use `firesteel worker start`")
    return {str(k): str(v) for k, v in found.items()}


if __name__ == "__main__":
    sys.exit(main())
