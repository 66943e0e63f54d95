"""A high-availability backend of your own, small enough to read: leadership and state in a directory that all nodes see.

    high-availability.type: firesteel_directory_ha:open_backend
    high-availability.storageDir: /var/lib/firesteel-ha

It keeps every promise of `firesteel.ha.protocols` where a lock on a file is held exactly as long as the process that took it
lives, or until that process gives it back: on a disk of one host. It is meant to be copied and changed, so it is honest about
the rest:

- A network file system may take the lock away from a node that it lost sight of, and then a write that this node has under way
  is not fenced. Do not use it there.
- A node that is stopped (not killed) in the middle of a write keeps the lock, and all others wait for it.
- Every write is a few fsyncs, one after the other: some hundred per second on a good disk.
- A path becomes the name of a file: 254 bytes at the most.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import json
import os
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TypeVar

from firesteel.config.loader import Configuration
from firesteel.errors import (
    FencingError,
    InvalidConfigError,
    Problem,
    StoreBrokenError,
    StoreError,
    StoreFailingError,
)
from firesteel.fs.files import private_dir, write_atomically
from firesteel.ha.changes import LeadershipChanges
from firesteel.ha.lease import LeaseElectionDriver, LeaseLostError, Sighting
from firesteel.ha.protocols import NEW, Epoch, LeaderInformation, Stored
from firesteel.ha.rules import NEVER, check_epoch, check_path, check_version

T = TypeVar("T")


async def open_backend(configuration: Configuration) -> DirectoryServices:
    """What `high-availability.type` names: takes the whole configuration, gives the open backend."""
    options = configuration.high_availability
    if not options.storage_dir or "://" in options.storage_dir:
        fix = "set it to a directory of this host"
        raise InvalidConfigError([Problem("names no directory", fix, field="high-availability.storageDir")])
    directory = Directory(Path(options.storage_dir) / options.cluster_id)
    await asyncio.to_thread(directory.prepare)
    return DirectoryServices(directory, options.lease_duration)


@dataclass(frozen=True, slots=True)
class Leadership:
    """The file that says who leads. Whoever changes it holds the lock."""

    epoch: Epoch = NEVER
    holder: str = ""
    renewals: int = 0
    """Grows while the holder lives. Others watch it with their own clocks."""
    address: str = ""
    last_version: int = 0


class Directory:
    """The files. Blocks: its methods are for threads."""

    def __init__(self, root: Path) -> None:
        self._lock, self._leader, self._state = root / "lock", root / "leader.json", root / "state"

    def prepare(self) -> None:
        with _mapped():
            private_dir(self._state)
            os.close(os.open(self._lock, os.O_RDWR | os.O_CREAT, 0o600))

    @contextlib.contextmanager
    def locked(self) -> Iterator[Leadership]:
        """Nobody else changes anything while the block lasts. Every write is one such block: that is what fences it."""
        with _mapped(), self._lock.open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield self.leadership()

    def leadership(self) -> Leadership:
        with _mapped():
            try:
                return Leadership(**json.loads(self._leader.read_text()))
            except FileNotFoundError:
                return Leadership()
            except (ValueError, TypeError) as error:
                raise StoreBrokenError(f"{self._leader} is damaged ({error}); restore it from a backup") from error

    def lead(self, leadership: Leadership) -> None:
        self._write(self._leader, json.dumps(asdict(leadership)).encode())

    def get(self, path: str) -> Stored | None:
        with _mapped():
            try:
                head, _, value = self._file(path).read_bytes().partition(b"\n")
            except FileNotFoundError:
                return None
            return Stored(value, int(head))

    def paths(self, prefix: str) -> list[str]:
        with _mapped():
            found = [name[1:].replace("%", "/") for name in os.listdir(self._state) if name.startswith("=")]
            return sorted(path for path in found if path.startswith(f"{prefix}/"))

    def put(self, path: str, value: bytes, epoch: Epoch, expected: int | None) -> int:
        with self.locked() as leadership:
            self._check(leadership, path, epoch, expected)
            version = leadership.last_version + 1
            self.lead(
                replace(leadership, last_version=version)
            )  # first: a crash leaves a gap, never a version used twice
            self._write(self._file(path), f"{version}\n".encode() + value)
            return version

    def delete(self, path: str, epoch: Epoch, expected: int | None) -> bool:
        with self.locked() as leadership:
            there = self._check(leadership, path, epoch, expected)
            self._file(path).unlink(missing_ok=True)
            _sync(self._state)
            return there

    def _check(self, leadership: Leadership, path: str, epoch: Epoch, expected: int | None) -> bool:
        """Whether something is there; raises what the protocol says."""
        check_epoch(epoch, leadership.epoch, f"a write of '{path}'")
        stored = self.get(path)
        check_version(path, stored.version if stored else NEW, expected)
        return stored is not None

    def _file(self, path: str) -> Path:
        # Neither is in a path: `=` tells values from files that are being written, and `%` is the slash.
        return self._state / f"={path.replace('/', '%')}"

    def _write(self, file: Path, content: bytes) -> None:
        write_atomically(file, content)
        _sync(file.parent)  # the new name, too, survives the loss of power


class DirectoryStore:
    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._reading = ThreadPoolExecutor(2, thread_name_prefix="ha-directory-reader")
        self._writing = ThreadPoolExecutor(1, thread_name_prefix="ha-directory-writer")
        """One thread: what is submitted first is written first."""
        self._closed = False

    async def get(self, path: str) -> Stored | None:
        check_path(path)
        return await self.read(lambda: self._directory.get(path))

    async def list(self, prefix: str) -> Mapping[str, Stored]:
        found = {path: await self.get(path) for path in await self.paths(prefix)}
        return {path: stored for path, stored in found.items() if stored is not None}

    async def paths(self, prefix: str) -> Sequence[str]:
        check_path(prefix)
        return await self.read(lambda: self._directory.paths(prefix))

    async def put(self, path: str, value: bytes, *, epoch: Epoch, expected: int | None = None) -> int:
        check_path(path)
        return await self.write(lambda: self._directory.put(path, value, epoch, expected))

    async def delete(self, path: str, *, epoch: Epoch, expected: int | None = None) -> bool:
        check_path(path)
        return await self.write(lambda: self._directory.delete(path, epoch, expected))

    async def close(self) -> None:
        self._closed = True
        await asyncio.to_thread(self._writing.shutdown)
        await asyncio.to_thread(self._reading.shutdown)

    async def read(self, action: Callable[[], T]) -> T:
        return await self._do(self._reading, action)

    async def write(self, action: Callable[[], T]) -> T:
        return await self._do(self._writing, action)

    async def _do(self, threads: ThreadPoolExecutor, action: Callable[[], T]) -> T:
        if self._closed:
            raise StoreError("the store is closed; open it again")
        return await asyncio.get_running_loop().run_in_executor(threads, action)


class DirectoryLease:
    """The leadership file as one contender reads and writes it. LeaseElectionDriver is the election around it."""

    def __init__(self, contender: str, directory: Directory, store: DirectoryStore) -> None:
        self._contender = contender
        self._directory = directory
        self._store = store
        self._me = f"{contender}/{uuid.uuid4().hex}"

    async def look(self) -> Sighting[Leadership]:
        row = await self._store.read(self._directory.leadership)
        return Sighting(row, row.epoch, sign=(row.epoch, row.renewals), free=row.holder in {"", self._me})

    async def take(self, seen: Sighting[Leadership]) -> Epoch | None:
        return await self._store.write(lambda: self._take(seen.found))

    async def renew(self, epoch: Epoch) -> None:
        if not await self._store.write(lambda: self._change(epoch)):
            raise LeaseLostError("another contender took over")

    async def publish(self, epoch: Epoch, address: str) -> None:
        if not await self._store.write(lambda: self._change(epoch, address=address)):
            raise FencingError(f"the address of contender '{self._contender}' was refused: it does not lead as {epoch}")

    async def leader(self) -> LeaderInformation | None:
        row = await self._store.read(self._directory.leadership)
        return LeaderInformation(row.epoch, row.address) if row.holder else None

    async def release(self) -> None:
        # Behind a take-over that nobody waits for any more: there is one thread that writes.
        await self._store.write(self._release)

    # -- in threads, under the lock --------------------------------------------------------------------------------

    def _take(self, seen: Leadership) -> Epoch | None:
        """A new epoch, unless somebody took it or renewed since the file was `seen`."""
        with self._directory.locked() as row:
            if (row.epoch, row.holder, row.renewals) != (seen.epoch, seen.holder, seen.renewals):
                return None
            epoch = Epoch(row.epoch + 1)
            self._directory.lead(replace(row, epoch=epoch, holder=self._me, renewals=0, address=""))
            return epoch

    def _change(self, epoch: Epoch, address: str | None = None) -> bool:
        """Renew, and set the address if there is one; False when we lead no more."""
        with self._directory.locked() as row:
            if (row.epoch, row.holder) != (epoch, self._me):
                return False
            address = row.address if address is None else address
            self._directory.lead(replace(row, renewals=row.renewals + 1, address=address))
            return True

    def _release(self) -> None:
        with self._directory.locked() as row:
            if row.holder == self._me:
                self._directory.lead(replace(row, holder="", address=""))


class DirectoryServices:
    def __init__(self, directory: Directory, lease: float) -> None:
        self._directory = directory
        self._lease = lease
        self._store = DirectoryStore(directory)
        self._elections: list[LeaseElectionDriver[Leadership]] = []

    @property
    def store(self) -> DirectoryStore:
        return self._store

    def election(self, contender: str) -> LeaseElectionDriver[Leadership]:
        lease = DirectoryLease(contender, self._directory, self._store)
        # Nothing tells of changes in a directory, so contenders look at it five times a second.
        driver = LeaseElectionDriver(
            contender, lease, lease_duration=self._lease, changes=LeadershipChanges(), look_every=0.2
        )
        self._elections.append(driver)
        return driver

    async def close(self) -> None:
        for driver in self._elections:
            await driver.close()
        await self._store.close()


@contextlib.contextmanager
def _mapped() -> Iterator[None]:
    """Errors of the system as those that the protocol knows."""
    try:
        yield
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EIO}:
            raise StoreFailingError(f"the directory cannot be written ({error}); free space on its disk") from error
        if error.errno == errno.ENAMETOOLONG:
            raise StoreError(f"the path is too long for a file ({error}); take a shorter one") from error
        raise StoreBrokenError(f"the directory cannot be used ({error}); check its permissions") from error


def _sync(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
