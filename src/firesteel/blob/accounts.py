"""How much each owner has stored and is uploading. Lives on the event loop: no step waits between a check and its
change."""

from __future__ import annotations

from collections.abc import Mapping

from firesteel.blob.keys import BlobKey
from firesteel.errors import QuotaExceededError

BLOCK = 4096
"""The least that a file counts for: a million files of one byte are not free (S24)."""


def cost(size: int) -> int:
    return max(size, BLOCK)


class Account:
    """One owner's files, each counted once, and what is under way in all of its uploads together."""

    def __init__(self, sizes: Mapping[BlobKey, int], quota: int) -> None:
        self._costs = {key: cost(size) for key, size in sizes.items()}
        self.stored = sum(self._costs.values())
        self.underway = 0
        self.reservations = 0
        self.again: set[BlobKey] = set()
        """Files that are being uploaded although the owner already has them."""
        self._quota = quota

    def reserve(self, expected: BlobKey | None) -> Reservation:
        """Reserve quota for one upload. Sending a file again costs nothing, one upload at a time (or an owner could
        fill the disk with many at once)."""
        if expected is None or expected in self.again or expected not in self._costs:
            return Reservation(self)
        return Reservation(self, expected, self._costs[expected])

    def grow(self, count: int) -> None:
        if count and self.stored + self.underway + count > self._quota:
            raise QuotaExceededError(
                f"the files of one owner may take {self._quota:,} bytes together: {self.stored:,} are stored and "
                f"{self.underway + count:,} being uploaded; delete files that you no longer need"
            )
        self.underway += count

    def keep(self, key: BlobKey, size: int) -> None:
        self.drop(key)
        self._costs[key] = cost(size)
        self.stored += cost(size)

    def drop(self, key: BlobKey) -> None:
        self.stored -= self._costs.pop(key, 0)


class Reservation:
    """What one upload holds of its owner's quota until it has ended."""

    def __init__(self, account: Account, known: BlobKey | None = None, free: int = 0) -> None:
        self._account = account
        self._known = known
        self._free = free
        """How many more bytes are already counted."""
        self._held = 0

    def __enter__(self) -> Reservation:
        if self._known is None:
            self._account.grow(BLOCK)
            self._held = self._free = BLOCK
        else:
            self._account.again.add(self._known)
        self._account.reservations += 1
        return self

    def __exit__(self, *_: object) -> None:
        self._release()
        self._account.reservations -= 1
        if self._known is not None:
            self._account.again.discard(self._known)

    def grow(self, count: int) -> None:
        """Reserve more. Raises QuotaExceededError, after which no more is held than before."""
        free = min(count, self._free)
        self._account.grow(count - free)
        self._free -= free
        self._held += count - free

    def keep(self, key: BlobKey, size: int) -> None:
        """The upload has become a file."""
        self._release()
        self._account.keep(key, size)

    def _release(self) -> None:
        self._account.underway -= self._held
        self._held = 0


class Accounts:
    """The accounts that were asked for since the last `forget`. What is on disk is the truth; this saves reading it."""

    def __init__(self, quota: int) -> None:
        self._quota = quota
        self._open: dict[str, Account] = {}

    def get(self, mark: str) -> Account | None:
        return self._open.get(mark)

    def learn(self, mark: str, sizes: Mapping[BlobKey, int]) -> Account:
        """The account of an owner whose files were just listed. Of several who listed them, the first one counts."""
        return self._open.setdefault(mark, Account(sizes, self._quota))

    def drop(self, key: BlobKey) -> None:
        """A file is gone, for all its owners."""
        for account in self._open.values():
            account.drop(key)

    def forget(self) -> None:
        """Drop the accounts that are not being changed, to read them again: another process may have changed files."""
        self._open = {mark: account for mark, account in self._open.items() if account.reservations}
