"""Whether a leader is known to be gone; and the batch that takes over."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from firesteel.errors import FencingError
from firesteel.ha.protocols import Epoch
from firesteel.ha.sql.batch import Batch, Holder, Leadership
from firesteel.ha.sql.election import holder_is_gone
from firesteel.ha.witness import process_namespace
from firesteel.processes import ProcessIdentity

ROW = Leadership(Epoch(3), "other", "host", 1, "1", renewals=5, address="http://other", last_version=9)
ME = Holder("me", "host", 2, "2")


def here(identity: ProcessIdentity) -> Leadership:
    return replace(ROW, host=process_namespace(), pid=identity.pid, process_started=identity.started)


def test_process_is_gone_only_when_that_is_certain() -> None:
    me = ProcessIdentity.of(os.getpid())
    assert me is not None
    host = process_namespace()
    assert host
    assert not holder_is_gone(here(me), host)
    reused = ProcessIdentity(me.pid, "1")
    assert holder_is_gone(here(reused), host)
    assert not holder_is_gone(replace(here(reused), host="elsewhere"), host)
    assert not holder_is_gone(replace(here(reused), host=""), "")
    assert not holder_is_gone(replace(here(reused), holder=""), host)


def test_process_that_ended_is_gone_also_as_a_zombie() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    identity = ProcessIdentity.of(child.pid)
    assert identity is not None
    assert not holder_is_gone(here(identity), process_namespace())
    child.kill()
    assert identity.wait(5)
    assert holder_is_gone(here(identity), process_namespace())
    child.communicate()
    assert holder_is_gone(here(identity), process_namespace())


def test_process_that_is_hidden_from_us_may_be_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    """/proc may be mounted so that the processes of others do not show."""

    def forbidden(pid: int, number: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", forbidden)
    nobody = ProcessIdentity(2**22 + 1, "1")  # above the largest pid: /proc has no entry
    assert not holder_is_gone(here(nobody), process_namespace())


@pytest.mark.parametrize("change", [{"renewals": 6}, {"epoch": Epoch(4)}, {"holder": "third"}])
def test_take_over_fails_when_the_row_changed_since_it_was_seen(change: dict[str, object]) -> None:
    batch = Batch(replace(ROW, **change), {})  # type: ignore[arg-type]
    assert batch.take(ME, ROW) is None
    assert not batch.leadership_changed


def test_take_over_makes_a_new_epoch_without_address_and_keeps_versions_growing() -> None:
    batch = Batch(ROW, {})
    assert batch.take(ME, ROW) == 4
    assert batch.leadership == Leadership(Epoch(4), "me", "host", 2, "2", renewals=0, address="", last_version=9)
    assert batch.put("a", b"", Epoch(4), None) == 10
    with pytest.raises(FencingError):  # in the same transaction already
        batch.put("a", b"", Epoch(3), None)


def test_only_the_holder_renews_publishes_and_gives_up() -> None:
    batch = Batch(ROW, {})
    assert not batch.renew(ME, Epoch(3))
    with pytest.raises(FencingError):
        batch.publish(ME, Epoch(3), "http://me")
    batch.release(ME)
    assert not batch.leadership_changed
    other = replace(ME, name="other")
    assert not batch.renew(other, Epoch(2))
    assert batch.renew(other, Epoch(3))
    assert batch.leadership.renewals == 6
    batch.release(other)
    assert (batch.leadership.holder, batch.leadership.epoch, batch.leadership.address) == ("", 3, "")
    assert not batch.renew(other, Epoch(3))
