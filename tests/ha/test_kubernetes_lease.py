"""The Lease: what each change leaves of it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from firesteel.ha.kubernetes.api import Api
from firesteel.ha.kubernetes.lease import LeaseRecord, published, released, renewed, taken
from firesteel.ha.kubernetes.leases import Leases
from firesteel.ha.kubernetes.names import Names
from firesteel.ha.protocols import Epoch

NAMES = Names("space", "test")


def stored(made: dict[str, Any]) -> LeaseRecord:
    """As the server would give it back."""
    metadata = {**made["metadata"], "uid": "u", "resourceVersion": "7", "managedFields": [{"manager": "x"}]}
    return LeaseRecord.of({**made, "metadata": metadata})


def held(epoch: int = 3, *, holder: str = "other", lease: float = 10) -> LeaseRecord:
    return stored(taken(NAMES, None, holder=holder, epoch=Epoch(epoch), lease=lease))


def test_taking_counts_transitions_and_forgets_the_address() -> None:
    first = stored(published(held(), "http://old"))
    assert (first.address, first.transitions) == ("http://old", 0)
    second = stored(taken(NAMES, first, holder="me", epoch=Epoch(4), lease=2.5))
    assert (second.epoch, second.holder, second.address) == (4, "me", "")
    assert (second.transitions, second.seconds) == (1, 3.0)


def test_changes_are_of_the_object_as_it_was_read_with_what_others_put_on_it() -> None:
    first = held()
    metadata = {**first.raw["metadata"], "annotations": {"firesteel/epoch": "3", "theirs": "x"}}
    edited = LeaseRecord.of({**first.raw, "metadata": metadata})
    for change in (renewed(edited), published(edited, "http://here"), released(edited)):
        assert change["metadata"]["resourceVersion"] == "7"
        assert change["metadata"]["uid"] == "u"
        assert change["metadata"]["annotations"]["theirs"] == "x"
        assert "managedFields" not in change["metadata"]
        assert stored(change).epoch == 3
    assert edited.raw["metadata"]["annotations"] == {"firesteel/epoch": "3", "theirs": "x"}


@pytest.mark.parametrize("text", [None, "", "many", "-1", "1.5", "٣", "9" * 40])
def test_annotation_that_is_no_epoch_counts_as_none(text: str | None) -> None:
    annotations = {} if text is None else {"firesteel/epoch": text}
    assert LeaseRecord.of({"metadata": {"annotations": annotations}}).epoch == 0


def test_lease_of_somebody_with_nothing_in_it() -> None:
    record = LeaseRecord.of({"metadata": {"name": "x"}, "spec": None})
    assert (record.holder, record.epoch, record.address) == ("", 0, "")
    assert stored(taken(NAMES, record, holder="me", epoch=Epoch(1), lease=1)).holder == "me"


def test_watch_that_ends_at_once_is_not_begun_again_at_once() -> None:
    """A proxy that answers and closes must not be asked as fast as it can answer."""
    begun = 0

    class Closing:
        async def watch(self, *_: Any) -> AsyncIterator[tuple[str, Any]]:
            nonlocal begun
            begun += 1
            await asyncio.sleep(0)
            return
            yield  # it is a generator, of nothing

    async def main() -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.5):
                await Leases(cast("Api", Closing()), NAMES).follow(lambda *_: None)

    asyncio.run(main())
    assert 1 < begun < 10
