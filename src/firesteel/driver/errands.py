"""Errands: work on paths that a caller names (savepoints, checkpoints, sink staging), in a process that can be killed.

A pipe, or a file server that is gone, then blocks this process and not the node. The kernel ends the process when the
errand's time is over, even if the node is gone by then.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import pwd
import shutil
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from firesteel.attempts.attempt import AttemptDirectory
from firesteel.attempts.checkpoints import batches_at, location_of
from firesteel.attempts.lifecycle import is_called_off
from firesteel.driver import foreign_files
from firesteel.errors import EnvironmentNotReadyError, FiresteelError, SavepointError, SupersededError
from firesteel.fs.generations import take
from firesteel.fs.urls import open_url
from firesteel.jobgraph.model import JobGraph, Mode
from firesteel.processes import ProcessIdentity
from firesteel.sandbox.users import OsUser, become
from firesteel.savepoint.dispose import dispose
from firesteel.savepoint.files import Place
from firesteel.savepoint.manifest import SavepointRequest
from firesteel.savepoint.retained import retain
from firesteel.savepoint.take import abandon, find, prepare
from firesteel.savepoint.take import take as take_savepoint
from firesteel.sinks.graph import clear

CHECKPOINT_POLL_SECONDS = 0.2
_END_WITH_PARENT = 1


def main(args: dict[str, Any]) -> int:
    """Run the errand `work`, and print its outcome as the last line."""
    if not args["kept"]:
        _end_with_the_node()
    signal.alarm(args["seconds"])
    try:
        answer = {"result": foreign_files.call(lambda: _WORK[args["work"]](args))}
    except (FiresteelError, OSError) as error:
        answer = {"error": type(error).__name__, "message": str(error) or type(error).__name__}
    except Exception as error:  # libraries may raise anything for a path that a caller named
        answer = {"error": "FiresteelError", "message": f"{type(error).__name__}: {error}"[:1000]}
    signal.alarm(0)
    sys.stdout.write(f"\n{json.dumps(answer)}\n")
    sys.stdout.flush()
    return 0


def let_go() -> bool:
    return True


def _end_with_the_node() -> None:
    """End this process when its parent ends, which ends with the node."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_END_WITH_PARENT, signal.SIGKILL, 0, 0, 0)


def _prepare(args: Mapping[str, Any]) -> None:
    prepare(args["location"], SavepointRequest.from_bytes(args["request"].encode(), args["location"]))


def _take(args: Mapping[str, Any]) -> dict[str, int]:
    alive = (lambda: not _is_over(args)) if args["attempt"] else None
    return take_savepoint(args["location"], alive=alive).batches


def _is_over(args: Mapping[str, Any]) -> bool:
    """As `lifecycle.is_over`, with a driver that was looked up: not every user may read the file that names it."""
    driver = ProcessIdentity(*args["driver"]) if args["driver"] else None
    return is_called_off(AttemptDirectory(Path(args["attempt"]))) or (driver is not None and not driver.alive)


def _checkpoint(args: Mapping[str, Any]) -> dict[str, int]:
    begun: dict[str, int] | None = None
    while True:
        over = _is_over(args)
        seen = {name: batches_at(location, name) for name, location in args["checkpoints"].items()}
        if begun is None:
            begun = {name: b.begun for name, b in seen.items()}
        if all(seen[name].committed >= batch for name, batch in begun.items()):
            return {name: b.committed for name, b in seen.items()}
        if over:
            raise FiresteelError(
                f"attempt {args['name']} ended before its current batch was committed; try again when the job runs"
            )
        time.sleep(CHECKPOINT_POLL_SECONDS)


def _dispose(args: Mapping[str, Any]) -> None:
    place = Place.at(args["location"], "the savepoint directory")
    if args["users"] and place.local and os.path.lexists(place.location.root):
        status = os.lstat(place.location.root)
        if status.st_uid == 0:
            raise SavepointError(f"the savepoint {args['location']} belongs to root, and only root can remove it")
        user = pwd.getpwuid(status.st_uid)
        become(OsUser(user.pw_name, user.pw_uid, user.pw_gid, user.pw_dir))
    dispose(args["location"], resumed=args["resumed"])


def _clean_up(args: Mapping[str, Any]) -> str:
    """Remove what a job leaves: staging and commit records of batch sinks, the checkpoint of a stream. Returns what
    could not be recorded."""
    graph = JobGraph.model_validate(args["graph"])
    left = [
        f"'{sink}': {error}"
        for sink, error in clear(graph, args["job_id"], finished=args["finished"], given_up=args["given_up"])
        # Where its owner may not write, no attempt has left anything.
        if not (args["confined"] and isinstance(error, PermissionError))
    ]
    if left:
        raise FiresteelError(f"staging of job {args['job_id']} could not be removed: sink {'; sink '.join(left)}")
    given_up = args["given_up"]
    if args["removed"]:
        remove_tree(args["removed"])
    if given_up and graph.mode is Mode.STREAMING:
        # Its query may wake up, and must neither go on in what is kept nor begin anew where nothing is left.
        for sink in graph.sinks:
            with contextlib.suppress(SupersededError):  # a later attempt has done so
                take(location_of(sink, args["retained"] or args["removed"]), args["job_id"], given_up + 1, given_up)
    if args["retained"]:
        try:
            retain(args["retained"], SavepointRequest.from_bytes(args["request"].encode(), args["retained"]))
        except (SavepointError, EnvironmentNotReadyError) as error:
            # There for Spark, and for a job whose sinks name it as their checkpointLocation.
            return str(error)
    return ""


def remove_tree(location: str) -> None:
    """Remove a local or remote directory; a missing one is fine."""
    if "://" not in location:
        shutil.rmtree(Path(location), ignore_errors=False) if Path(location).exists() else None
        return
    fs, path = open_url(location)
    if fs.exists(path):
        fs.rm(path, recursive=True)


_WORK: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "prepare": _prepare,
    "take": _take,
    "batches": lambda args: find(args["location"]).batches,
    "sizes": lambda args: find(args["location"]).sizes,
    "abandon": lambda args: abandon(args["location"]),
    "dispose": _dispose,
    "checkpoint": _checkpoint,
    "clean-up": _clean_up,
}
