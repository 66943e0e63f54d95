"""The output of a file sink that starts from a savepoint.

Spark's log of the output must end where the checkpoint ends: batches that are in it are skipped, and what should be
compacted must be there. In an output of its own, the log gets empty entries. In the output that the savepoint's query
wrote to, it is cut back to the savepoint; files of later batches, which are about to be written again, are put aside.
"""

from __future__ import annotations

from firesteel.errors import InvalidPipelineError, Problem
from firesteel.fs.store import Move, locate
from firesteel.savepoint import sinklog
from firesteel.savepoint.files import Place
from firesteel.savepoint.manifest import NONE, SINK_LOG, SavedSink
from firesteel.types import JobID

ASIDE = "_rolled_back"
"""Directory in the output for files of batches after the savepoint; readers skip names that begin with `_`."""
LOG_ASIDE = "_log"
"""Directory in there for the log entries that named them."""


def check(sink: str, path: str, saved: SavedSink, *, begun: bool) -> None:
    """Raise InvalidPipelineError when `path` has the output of a query other than the savepoint's."""
    log = _output(path).below(sinklog.LOG)
    entries = {n: b for n in log.names() if (b := sinklog.number(n)) is not None}
    if not entries or begun:
        return
    known = saved.files_of(SINK_LOG)
    mine = _goes_on(path, saved) and max(entries.values()) >= saved.batch and (known or saved.batch == NONE)
    if not mine or any(log.sum(name) != known[name] for name in entries if name in known):
        raise InvalidPipelineError(
            [
                Problem(
                    f"'{path}' has the output of another streaming query than the savepoint's",
                    "give the sink a path of its own, or that of the savepoint's job",
                    vertex=sink,
                    field="path",
                )
            ]
        )


def _output(path: str) -> Place:
    return Place.at(path, "the output")


def _goes_on(path: str, saved: SavedSink) -> bool:
    """Whether it is the output that the savepoint's query wrote to."""
    return saved.places.path is not None and _output(path).same(_output(saved.places.path))


def restore(path: str, job_id: JobID, saved: SavedSink, data: Place) -> str:
    """Make the log end with the savepoint's batch. Returns a message for the user, if there is one. May be repeated."""
    output = _output(path)
    log = output.below(sinklog.LOG)
    names = [n for n in log.names() if sinklog.number(n) is not None]
    seed = sinklog.seed(saved.batch)
    fresh = set(names) <= set(seed) and all(log.read(n) == sinklog.EMPTY for n in names)
    if fresh or not _goes_on(path, saved):
        for name in seed:
            log.write(name, sinklog.EMPTY)
        return ""
    put_back = {name: data.read(f"{SINK_LOG}/{name}") or b"" for name in saved.files_of(SINK_LOG)}
    for name, content in put_back.items():
        if name not in names:
            log.write(name, content)
    aside = output.below(f"{ASIDE}/{job_id}")
    _cut(log, aside, [n for n in names if _batch(n) > saved.batch])
    moved = _put_aside(output, aside, list(put_back.values()))
    if not moved:
        return ""
    return f"{moved} files that were written after the savepoint were moved to {path.rstrip('/')}/{ASIDE}/{job_id}"


def _batch(name: str) -> int:
    return int(name.partition(".")[0])


def _cut(log: Place, aside: Place, later: list[str]) -> None:
    """Move the entries of later batches out of the log, the last first, so that readers always find it whole."""
    later = sorted(later, key=_batch, reverse=True)
    sizes = log.store.sizes_of([log.path(n) for n in later])
    moves = [
        Move(log.path(n), aside.path(f"{LOG_ASIDE}/{n}"), s) for n, s in zip(later, sizes, strict=True) if s is not None
    ]
    log.store.move(moves)
    log.remove(*(f".{n}.crc" for n in later))


def _put_aside(output: Place, aside: Place, kept: list[bytes]) -> int:
    """Move the files that the moved entries name, and return how many. A driver before us may have moved the entries.

    Compacted entries name files of the savepoint too, those that `kept` names.
    """
    named: dict[str, int] = {}
    for name in aside.names(LOG_ASIDE):
        named |= sinklog.paths(aside.read(f"{LOG_ASIDE}/{name}") or b"")
    for entry in kept:
        for known in sinklog.paths(entry):
            named.pop(known, None)
    root = output.location.root
    inside: dict[str, int] = {}
    for spelled, size in named.items():
        place = locate(spelled, "", {}).root
        if place.startswith(f"{root}/"):
            inside[place[len(root) + 1 :]] = size
    sizes = output.store.sizes_of([output.path(name) for name in inside])
    there = [name for name, size in zip(inside, sizes, strict=True) if size is not None]
    output.store.move([Move(output.path(n), aside.path(n), inside[n]) for n in there])
    # Checksums that stay would be taken for those of new files of the same name.
    output.remove(
        *(f"{above}/.{n}.crc" if above else f".{n}.crc" for above, _, n in (x.rpartition("/") for x in there))
    )
    return len(there)
