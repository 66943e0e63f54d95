"""What an ended job must not leave in the files of its cluster (I12), and what must be there still (I13)."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from firesteel.layout import ClusterLayout, attempts_of
from firesteel.types import JobID
from firesteel_chaos.history import History
from firesteel_chaos.sites import Site
from firesteel_chaos.workload.errands import Planned

CLEAN_SECONDS = 30.0
"""How long a clean-up may take after the last job has ended, on a machine that has other things to do."""
_MANIFEST = "_savepoint.json"


def look_for_leftovers(
    history: History, sites: Sequence[Site], jobs: Iterable[Planned], over: Callable[[], bool]
) -> None:
    """Waits until nothing is left; what is left all the same is written down."""
    ended = [j for j in jobs if j.result is not None]
    deadline = time.monotonic() + CLEAN_SECONDS
    while (left := sorted({(j.job, w) for j in ended for site in sites for w in leftovers(site, j)})) and not over():
        if time.monotonic() > deadline:
            for job, what in left:
                history.record("left", job=job, what=what)
            return
        time.sleep(0.3)


def leftovers(site: Site, planned: Planned) -> list[str]:
    """What is found of an ended job, by name."""
    assert planned.result is not None
    attempts = attempts_of(ClusterLayout.below(site.data_dir, site.cluster_id).jobs, JobID(planned.job))
    where = f" on {site.name}" if site.name else ""
    found = [f"attempts/{f.parent.name}/{f.name}{where}" for f in attempts.glob("*/spec.json")]
    # That of a stream is kept on purpose.
    if not planned.result.get("checkpoint") and any((site.data_dir / "checkpoints").glob(f"*/{planned.job}")):
        found.append("its checkpoint")
    if planned.load == "batch" and planned.out is not None and planned.out.is_dir():
        found += [
            f"{p.name} in its output"
            for p in planned.out.iterdir()
            # A note that the job is over stays on purpose: it stops an attempt that was given up and wakes up later (I27).
            if p.name.startswith((".", "_")) and p.is_dir() and any(f.suffix != ".over" for f in p.iterdir())
        ]
    return found


def look_at_savepoints(history: History, saved: Iterable[tuple[str, str]]) -> None:
    for job, location in saved:
        path = Path(location.removeprefix("file://"))
        history.record("savepoint", job=job, path=location, present=_complete(path))


def _complete(path: Path) -> bool:
    """It has its manifest, and every file that the manifest names is as it says."""
    try:
        manifest = json.loads((path / _MANIFEST).read_text())
        return all(
            hashlib.sha256((path / manifest["data"] / sink / name).read_bytes()).hexdigest() == file["sha256"]
            for sink, saved in manifest["sinks"].items()
            for name, file in saved["files"].items()
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False
