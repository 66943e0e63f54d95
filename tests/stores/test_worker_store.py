"""Workers and join tokens in the fenced store: what is kept, and that a token lets in one worker."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest
from tests.stores.store_doubles import EPOCH, OLD, FaultyStore

from firesteel.errors import (
    FencingError,
    ForbiddenError,
    QuotaExceededError,
    StoreUnavailableError,
    WorkerNotFoundError,
    WorkerStateError,
)
from firesteel.stores.codec import UnreadableRecordError
from firesteel.stores.workers import (
    IssuedToken,
    LostWorker,
    WorkerRecord,
    WorkerStore,
    is_worker_id,
    is_worker_name,
    new_worker_id,
    new_worker_secret,
    secret_digest,
)

NOW = 1_700_000_000.0


def newcomer(number: int = 1, *, name: str = "", secret: str = "s") -> WorkerRecord:
    worker = f"w{number:016x}"
    return WorkerRecord(worker, name or f"host-{number}", secret_digest(secret), f"host-{number}", joined_at=NOW)


async def issued(store: WorkerStore, *, name: str = "", lifetime: float = 60.0) -> IssuedToken:
    return await store.issue(expires_at=NOW + lifetime, now=NOW, epoch=EPOCH, name=name)


def test_a_record_comes_back_as_it_was_and_holds_no_secret() -> None:
    async def run() -> None:
        raw = FaultyStore()
        store = WorkerStore(raw)
        record = dataclasses.replace(
            newcomer(secret="open sesame"),
            labels={"zone": "a"},
            draining=True,
            lost=LostWorker(NOW, "ann", "ab12"),
            policy="run-on",
            isolation_timeout=60.0,
        )
        await store.put(record, epoch=EPOCH)
        assert await WorkerStore(raw).get(record.id) == record
        assert await WorkerStore(raw).list() == {record.id: record}
        assert b"sesame" not in await raw.value(f"workers/{record.id}")
        assert record.opened_by("open sesame")
        assert not record.opened_by("close sesame")
        assert not dataclasses.replace(record, revoked=True).opened_by("open sesame")
        assert not dataclasses.replace(record, secret_sha256="").opened_by("")
        token = await issued(store)
        assert token.secret.encode() not in await raw.value(f"worker-tokens/{token.id}")

    asyncio.run(run())


@pytest.mark.parametrize("text", ["", "w1", "../x", "W0123456789abcdef", "w0123456789abcdeg", "w0123456789abcdef\n"])
def test_what_is_no_id_is_no_path(text: str) -> None:
    """S4"""
    assert not is_worker_id(text)
    with pytest.raises(ValueError, match="not a worker id"):
        asyncio.run(WorkerStore(FaultyStore()).get(text))
    with pytest.raises(ValueError, match="not the id of a join token"):
        asyncio.run(WorkerStore(FaultyStore()).token(text))


def test_ids_secrets_and_names() -> None:
    assert is_worker_id(new_worker_id())
    assert len(bytes.fromhex(new_worker_secret())) == 32
    assert is_worker_name("node-7.example.org")
    for name in ("", "-a", "a b", "a/b", "join\n", new_worker_id(), "a" * 129):
        assert not is_worker_name(name), name


def test_a_former_leader_writes_nothing() -> None:
    """I6"""

    async def run() -> None:
        store = WorkerStore(FaultyStore())
        token = await issued(store)
        await store.put(newcomer(2), epoch=EPOCH)
        with pytest.raises(FencingError):
            await store.put(newcomer(), epoch=OLD)
        with pytest.raises(FencingError):
            await store.issue(expires_at=NOW + 1, now=NOW, epoch=OLD)
        with pytest.raises(FencingError):
            await store.join(token.id, newcomer(), now=NOW, epoch=OLD)
        with pytest.raises(FencingError):
            await store.change(newcomer(2).id, lambda r: dataclasses.replace(r, draining=True), epoch=OLD)
        assert list(await store.list()) == [newcomer(2).id]

    asyncio.run(run())


def test_changes_of_two_at_a_time_both_count() -> None:
    async def run() -> None:
        raw = FaultyStore()
        one, two = WorkerStore(raw), WorkerStore(raw)
        await one.put(newcomer(), epoch=EPOCH)
        await asyncio.gather(
            one.change(newcomer().id, lambda r: dataclasses.replace(r, draining=True), epoch=EPOCH),
            two.change(newcomer().id, lambda r: dataclasses.replace(r, revoked=True), epoch=EPOCH),
        )
        changed = await one.get(newcomer().id)
        assert changed == dataclasses.replace(newcomer(), draining=True, revoked=True)
        with pytest.raises(WorkerNotFoundError, match=newcomer(9).id):
            await one.change(newcomer(9).id, lambda r: r, epoch=EPOCH)

    asyncio.run(run())


def test_a_worker_that_registers_is_noted_and_what_others_wrote_meanwhile_is_kept() -> None:
    """S47: a registration that was on its way does not undo a revocation."""

    async def run() -> None:
        raw = FaultyStore()
        store = WorkerStore(raw)
        noted = await store.note(newcomer(), lambda r: dataclasses.replace(r, host="here"), epoch=EPOCH)
        assert noted == dataclasses.replace(newcomer(), host="here") == await store.get(newcomer().id)
        await asyncio.gather(
            store.note(newcomer(), lambda r: dataclasses.replace(r, host="there"), epoch=EPOCH),
            WorkerStore(raw).change(newcomer().id, lambda r: dataclasses.replace(r, revoked=True), epoch=EPOCH),
        )
        assert await store.get(newcomer().id) == dataclasses.replace(newcomer(), host="there", revoked=True)

    asyncio.run(run())


def test_one_bad_record_hides_no_other() -> None:
    """F21"""

    async def run() -> None:
        raw = FaultyStore()
        store = WorkerStore(raw)
        await store.put(newcomer(1), epoch=EPOCH)
        await raw.damage(f"workers/{newcomer(2).id}", b"{")
        await raw.damage(f"workers/{newcomer(3).id}", await raw.value(f"workers/{newcomer(1).id}"))
        assert list(await store.list()) == [newcomer(1).id]
        with pytest.raises(UnreadableRecordError, match="record of"):
            await store.get(newcomer(3).id)

    asyncio.run(run())


# -- joining ------------------------------------------------------------------------------------------------------------


def test_a_token_lets_in_one_worker_whoever_leads() -> None:
    """S47"""

    async def run() -> None:
        raw = FaultyStore()
        store = WorkerStore(raw)
        token = await issued(store)
        assert await store.join(token.id, newcomer(1), now=NOW, epoch=EPOCH) == newcomer(1)
        for asked in (store, WorkerStore(raw)):
            with pytest.raises(ForbiddenError, match="used by another"):
                await asked.join(token.id, newcomer(2), now=NOW, epoch=EPOCH)
            with pytest.raises(ForbiddenError, match="used by another"):
                await asked.join(token.id, newcomer(1, secret="another"), now=NOW, epoch=EPOCH)
        assert await store.list() == {newcomer(1).id: newcomer(1)}

    asyncio.run(run())


def test_of_two_that_come_with_one_token_one_joins() -> None:
    """S47: through two requests of one leader, or of two that both believe to lead in one epoch."""

    async def run() -> None:
        raw = FaultyStore()
        token = await issued(WorkerStore(raw))
        stores = [WorkerStore(raw), WorkerStore(raw)]
        tried = await asyncio.gather(
            *(stores[number % 2].join(token.id, newcomer(number), now=NOW, epoch=EPOCH) for number in range(1, 7)),
            return_exceptions=True,
        )
        joined = [t for t in tried if isinstance(t, WorkerRecord)]
        assert len(joined) == 1
        assert sum(isinstance(t, ForbiddenError) for t in tried) == 5
        assert await stores[0].list() == {joined[0].id: joined[0]}

    asyncio.run(run())


@pytest.mark.parametrize("write", [1, 2])
def test_a_join_whose_answer_was_lost_is_repeated(write: int) -> None:
    """F5: after each of its two writes."""

    async def run() -> None:
        raw = FaultyStore()
        store = WorkerStore(raw)
        token = await issued(store)
        if write == 1:
            raw.lose_answer()
        else:
            put = raw.put

            async def losing(path: str, *args: object, **given: object) -> int:
                if path.startswith("workers/"):
                    raw.lose_answer()
                    raw.put = put  # type: ignore[method-assign]
                return await put(path, *args, **given)  # type: ignore[arg-type]

            raw.put = losing  # type: ignore[method-assign]
        with pytest.raises(StoreUnavailableError):
            await store.join(token.id, newcomer(), now=NOW, epoch=EPOCH)
        assert (await store.get(newcomer().id) is None) == (write == 1)
        again = WorkerStore(raw)  # the next leader
        assert await again.join(token.id, newcomer(), now=NOW, epoch=EPOCH) == newcomer()
        assert await again.join(token.id, newcomer(), now=NOW, epoch=EPOCH) == newcomer()

    asyncio.run(run())


def test_what_has_expired_lets_nobody_in_and_is_removed() -> None:
    """S47"""

    async def run() -> None:
        raw = FaultyStore()
        store = WorkerStore(raw, max_tokens=2)
        token = await issued(store, lifetime=10.0)
        for late in (10.0, 1000.0):
            with pytest.raises(ForbiddenError, match="expired"):
                await store.join(token.id, newcomer(), now=NOW + late, epoch=EPOCH)
        with pytest.raises(ForbiddenError, match="unknown or expired"):
            await store.join("0" * 16, newcomer(), now=NOW, epoch=EPOCH)
        await issued(store)
        with pytest.raises(QuotaExceededError):
            await issued(store)
        await store.issue(expires_at=NOW + 99, now=NOW + 20, epoch=EPOCH)
        assert token.id not in {t.id for t in await store.tokens()}

    asyncio.run(run())


def test_a_token_for_a_name_is_for_that_worker() -> None:
    async def run() -> None:
        store = WorkerStore(FaultyStore())
        token = await issued(store, name="alpha")
        with pytest.raises(ForbiddenError, match="'alpha'"):
            await store.join(token.id, newcomer(name="beta"), now=NOW, epoch=EPOCH)
        assert (await store.join(token.id, newcomer(name="alpha"), now=NOW, epoch=EPOCH)).name == "alpha"

    asyncio.run(run())


def test_names_are_unique_until_their_worker_is_revoked() -> None:
    async def run() -> None:
        store = WorkerStore(FaultyStore())
        first, second = await issued(store), await issued(store)
        await store.join(first.id, newcomer(1, name="alpha"), now=NOW, epoch=EPOCH)
        with pytest.raises(WorkerStateError, match="another worker is called 'alpha'"):
            await store.join(second.id, newcomer(2, name="alpha"), now=NOW, epoch=EPOCH)
        await store.change(newcomer(1).id, lambda r: dataclasses.replace(r, revoked=True), epoch=EPOCH)
        await store.join(second.id, newcomer(2, name="alpha"), now=NOW, epoch=EPOCH)  # the token was not used up

    asyncio.run(run())


def test_nobody_joins_as_a_worker_that_is_there() -> None:
    """S47: what runs on that host would be the attacker's to speak for."""

    async def run() -> None:
        store = WorkerStore(FaultyStore())
        await store.put(newcomer(1), epoch=EPOCH)
        for name in ("", "host-1"):
            token = await issued(store, name=name)
            with pytest.raises(WorkerStateError, match="has already joined"):
                await store.join(token.id, newcomer(1, secret="mine"), now=NOW, epoch=EPOCH)
        await store.change(newcomer(1).id, lambda r: dataclasses.replace(r, revoked=True), epoch=EPOCH)
        for name in ("", "elsewhere"):
            token = await issued(store, name=name)
            with pytest.raises((WorkerStateError, ForbiddenError)):
                await store.join(token.id, newcomer(1, secret="mine"), now=NOW, epoch=EPOCH)
        assert await store.list() == {newcomer(1).id: dataclasses.replace(newcomer(1), revoked=True)}

    asyncio.run(run())


def test_a_revoked_worker_gets_a_new_credential_with_a_token_for_its_name_and_keeps_its_marks() -> None:
    async def run() -> None:
        store = WorkerStore(FaultyStore())
        old = await issued(store)
        await store.join(old.id, newcomer(1), now=NOW, epoch=EPOCH)
        marked = await store.change(
            newcomer(1).id, lambda r: dataclasses.replace(r, revoked=True, draining=True), epoch=EPOCH
        )
        with pytest.raises(ForbiddenError, match="was revoked"):  # a replay does not undo it
            await store.join(old.id, newcomer(1), now=NOW, epoch=EPOCH)
        new = await issued(store, name="host-1")
        joined = await store.join(new.id, newcomer(1, secret="new"), now=NOW, epoch=EPOCH)
        assert joined == dataclasses.replace(marked, secret_sha256=secret_digest("new"), revoked=False)

    asyncio.run(run())


def test_a_worker_that_was_forgotten_does_not_come_back_with_its_old_token() -> None:
    async def run() -> None:
        store = WorkerStore(FaultyStore())
        token = await issued(store)
        await store.join(token.id, newcomer(), now=NOW, epoch=EPOCH)
        assert await store.delete(newcomer().id, epoch=EPOCH)
        assert not await store.delete(newcomer().id, epoch=EPOCH)
        with pytest.raises(ForbiddenError):
            await store.join(token.id, newcomer(), now=NOW, epoch=EPOCH)

    asyncio.run(run())
