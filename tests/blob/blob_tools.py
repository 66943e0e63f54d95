"""A store in a test's directory, and a disk whose every step can be seen, failed, or ordered against another's."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import random
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from firesteel.blob.keys import BlobKey
from firesteel.blob.store import BlobStore
from firesteel.blob.upload import IncomingBlob

T = TypeVar("T")
STEPS = ("open", "write", "fsync", "rename", "replace", "unlink", "lstat", "utime", "mkdir", "listdir", "pread", "stat")


class Clock:
    """Goes on by itself a little each time it is looked at, as clocks do: two looks never see the same time."""

    def __init__(self) -> None:
        self.time = 1_900_000_000.0

    def __call__(self) -> float:
        self.time += 1e-6
        return self.time


def key_of(content: bytes) -> BlobKey:
    return BlobKey(hashlib.sha256(content).hexdigest())


async def chunks(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def read(store: BlobStore, key: BlobKey, owner: str | None = None, **part: int) -> bytes:
    _, pieces = await store.open_read(key, owner, **part)
    return b"".join([piece async for piece in pieces])


def with_store(
    root: Path, work: Callable[[BlobStore], Coroutine[Any, Any, T]], *, max_size: int = 1 << 24, quota: int = 1 << 26
) -> T:
    """Run `work` with an open store, on the clock of the machine."""

    async def main() -> T:
        store = BlobStore(root, max_size=max_size, quota=quota)
        await store.open()
        try:
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(main())


def stored_files(root: Path) -> list[str]:
    """All files below a store's directory, without the marks of their owners."""
    files = [p.relative_to(root) for p in root.rglob("*") if not p.is_dir()]
    return sorted(str(p) for p in files if p.parts[0] != "owners")


def all_files(root: Path) -> list[str]:
    return sorted(str(p.relative_to(root)) for p in root.rglob("*") if not p.is_dir())


def finished_upload(directory: Path, content: bytes, when: float) -> IncomingBlob:
    upload = IncomingBlob(directory)
    upload.write(content)
    upload.finish(when)
    return upload


class Crashed(BaseException):
    """The process is dead from here on: no handler gets anything done any more."""


@contextlib.contextmanager
def watched_disk(before: Callable[[str], None]) -> Iterator[None]:
    """Call `before` with the name of each step on the disk, in the thread that takes it."""

    def wrapped(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any, **kwargs: Any) -> Any:
            before(name)
            return real(*args, **kwargs)

        return step

    with pytest.MonkeyPatch.context() as patch:
        for name in STEPS:
            patch.setattr(os, name, wrapped(name, getattr(os, name)))
        yield


def crash_at(step: int, work: Callable[[], object]) -> bool:
    """Do `work` and die before the given step. False: there were not that many steps."""
    taken = 0

    def before(_: str) -> None:
        nonlocal taken
        taken += 1
        if taken >= step:
            raise Crashed

    with watched_disk(before):
        try:
            work()
        except Crashed:
            return True
    return taken >= step


class Interleaving:
    """Several calls, each in a thread as if in a process of its own, that take turns step by step as a seed says."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._turn: dict[int, threading.Semaphore] = {}
        self._arrived = threading.Semaphore(0)
        self.trace: list[str] = []

    def run(self, *calls: Callable[[], object]) -> list[object]:
        """What each returned or raised."""
        results: list[object] = [None] * len(calls)
        alive = set(range(len(calls)))

        def body(number: int, call: Callable[[], object]) -> None:
            self._turn[threading.get_ident()] = turns[number]
            self._wait("start")
            try:
                results[number] = call()
            except Exception as error:
                results[number] = error
            alive.discard(number)
            self._arrived.release()

        turns = [threading.Semaphore(0) for _ in calls]
        threads = [threading.Thread(target=body, args=(n, c), daemon=True) for n, c in enumerate(calls)]
        with watched_disk(self._wait):
            for thread in threads:
                thread.start()
                assert self._arrived.acquire(timeout=60)
            number, stay = 0, self._random.choice([0.0, 0.7, 0.9])  # one may go far while the other one stands still
            while alive:
                if number not in alive or self._random.random() >= stay:
                    number = self._random.choice(sorted(alive))
                self.trace.append(str(number))
                turns[number].release()
                assert self._arrived.acquire(timeout=60), f"stuck after {self.trace}"
            for thread in threads:
                thread.join(60)
        return results

    def _wait(self, name: str) -> None:
        turn = self._turn.get(threading.get_ident())
        if turn is not None:
            self.trace.append(name)
            self._arrived.release()
            assert turn.acquire(timeout=60)
