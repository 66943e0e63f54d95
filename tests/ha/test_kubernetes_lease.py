"""The Lease: when it may be taken, and what each change leaves of it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, cast

import pytest

from firesteel.ha.kubernetes.api import Api
from firesteel.ha.kubernetes.lease import LeaseObserver, LeaseRecord, published, released, renewed, taken
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


def test_lease_is_counted_from_when_it_was_seen_to_change() -> None:
    observer, first = LeaseObserver(10), held()
    assert not observer.may_take(first, 100, vacant=False)
    assert not observer.may_take(first, 109.9, vacant=False)
    second = replace(first, renewed="later")
    assert not observer.may_take(second, 111, vacant=False)
    assert not observer.may_take(second, 120.9, vacant=False)
    assert observer.may_take(second, 121, vacant=False)


def test_what_shows_no_life_does_not_prolong_it() -> None:
    observer, first = LeaseObserver(10), held()
    assert not observer.may_take(first, 0, vacant=False)
    assert observer.may_take(replace(first, address="http://new", raw={"metadata": {}}), 10, vacant=False)


def test_holder_that_wants_to_be_waited_for_longer_is() -> None:
    """Nodes may be configured differently, if only while that is being changed."""
    observer, first = LeaseObserver(10), held(lease=30)
    assert not observer.may_take(first, 0, vacant=False)
    assert not observer.may_take(first, 29.9, vacant=False)
    assert observer.may_take(first, 30, vacant=False)


def test_given_up_is_free_at_once() -> None:
    assert LeaseObserver(10).may_take(stored(released(held())), 0, vacant=False)
    assert LeaseObserver(10).may_take(held(), 0, vacant=True)


def test_lease_that_is_gone_is_waited_for_like_one_that_is_held() -> None:
    observer = LeaseObserver(10)
    assert not observer.may_take(held(), 0, vacant=False)
    assert not observer.may_take(None, 9, vacant=False)
    assert not observer.may_take(None, 18.9, vacant=False)
    assert observer.may_take(None, 19, vacant=False)
    assert LeaseObserver(10).may_take(None, 0, vacant=True)


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
