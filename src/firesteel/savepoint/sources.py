"""Whether the sources of a query can continue from the offsets in a savepoint. To Spark, sources have no names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from firesteel.jobgraph.formats import BatchCommit, lookup
from firesteel.jobgraph.model import Source
from firesteel.savepoint.verdict import Level, RestoreFinding

_PLACES = ("subscribe", "subscribepattern", "assign", "dbtable", "path", "host", "port", "kafka.bootstrap.servers")


def compare(old: Sequence[Source], new: Sequence[Source], sink: str) -> Iterator[RestoreFinding]:
    """The differences between the sources of two queries."""
    if len(old) != len(new):
        text = f"it read {len(old)} streams and reads {len(new)}; the offsets in the savepoint belong to the old ones"
        yield RestoreFinding(Level.NOT, sink, text)
        return
    was, now = [_place(s) for s in old], [_place(s) for s in new]
    if was != now and sorted(was) == sorted(now):
        yield RestoreFinding(
            Level.NOT, sink, "its streams are in another order, and the offsets in the savepoint follow the old one"
        )
        return
    for before, after in zip(old, new, strict=True):
        if before.format != after.format and not (_files(before) and _files(after)):
            text = f"it was a stream of format '{before.format}' and is one of '{after.format}'; their offsets differ"
            yield RestoreFinding(Level.NOT, after.name, text)
        elif _place(before) != _place(after):
            yield RestoreFinding(Level.CHANGES, after.name, "it reads from another place, with the savepoint's offsets")
        elif before.schema_ != after.schema_:
            yield RestoreFinding(Level.CHANGES, after.name, "its schema has changed")
        elif before.watermark != after.watermark:
            yield RestoreFinding(Level.CHANGES, after.name, "its watermark has changed")


def _files(source: Source) -> bool:
    return lookup(source.format).commit is BatchCommit.STAGED_FILES


def _place(source: Source) -> tuple[str, ...]:
    named: Mapping[str, str] = {k.lower(): v for k, v in source.options.items() if k.lower() in _PLACES}
    return (source.path or "", source.table or "", *(f"{k}={v}" for k, v in sorted(named.items())))
