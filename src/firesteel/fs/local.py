"""Files on a mounted file system: atomic renames, exclusive creation by hard link, directories fsync'ed.

Every call that changes something goes through this module's name `os`, which is where the tests crash it.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterable, Sequence

from firesteel.fs.files import NotAPlainFileError, open_plain
from firesteel.fs.store import Move, PathKind, lost

_NO_HARD_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}
_RENAME_TRIES = 5


class LocalStore:
    """FileStore of plain absolute paths. Plain `os` calls: fsspec costs more per file than the rename itself."""

    renames_directories = True

    def kind(self, path: str) -> PathKind | None:
        try:
            return PathKind.DIRECTORY if stat.S_ISDIR(os.stat(path).st_mode) else PathKind.FILE
        except (FileNotFoundError, NotADirectoryError):
            return None

    def read(self, path: str) -> bytes | None:
        try:
            with open_plain(path) as f:
                return f.read()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except NotAPlainFileError as error:
            raise OSError(errno.EINVAL, "is not a plain file", path) from error

    def names(self, directory: str) -> list[str]:
        try:
            return sorted(os.listdir(directory))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def sizes(self, root: str, within: Iterable[str] = ("",)) -> dict[str, int]:
        found: dict[str, int] = {}
        pending = [w.strip("/") for w in within]
        while pending:
            relative = pending.pop()
            files, directories = self._entries(_join(root, relative))
            found.update({_join(relative, name): size for name, size in files.items()})
            pending.extend(_join(relative, name) for name in directories)
        return found

    def _entries(self, directory: str) -> tuple[dict[str, int], list[str]]:
        files: dict[str, int] = {}
        directories: list[str] = []
        try:
            with os.scandir(directory) as entries:
                for entry in entries:
                    # A symbolic link is an entry of its own: what it points to is not ours to list or delete.
                    if entry.is_dir(follow_symlinks=False):
                        directories.append(entry.name)
                    else:
                        files[entry.name] = entry.stat(follow_symlinks=False).st_size
        except (FileNotFoundError, NotADirectoryError):  # also below a file there is nothing
            pass
        return files, directories

    def sizes_of(self, paths: Sequence[str]) -> list[int | None]:
        return [_size(p) for p in paths]

    def make_directory(self, path: str) -> None:
        self._sync(self._make_directory(path))

    def _make_directory(self, path: str) -> set[str]:
        """Make it; returns the directories that got a new entry and are not synced yet."""
        missing = []
        above = path
        while not os.path.isdir(above) and above != os.path.dirname(above):
            missing.append(above)
            above = os.path.dirname(above)
        for attempt in range(_RENAME_TRIES):
            try:
                os.makedirs(path, exist_ok=True)
                break
            except FileNotFoundError:  # another job found the parent empty and removed it under us
                if attempt + 1 == _RENAME_TRIES:
                    raise
        return {os.path.dirname(m) for m in missing}

    def create(self, path: str, data: bytes) -> bool:
        temporary = self._write_temporary(path, data)
        try:
            os.link(temporary, path)
            created = True
        except FileExistsError:
            created = False
        except OSError as e:
            if e.errno not in _NO_HARD_LINKS:
                raise
            created = self._create_without_links(path, data)
        os.unlink(temporary)
        self._sync({os.path.dirname(path)})
        return created or self.read(path) == data

    def _create_without_links(self, path: str, data: bytes) -> bool:
        """Exclusive, but a crash leaves a torn file, which its reader refuses to act on."""
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        except FileExistsError:
            return False
        _fill(fd, data)
        return True

    def write(self, path: str, data: bytes) -> None:
        os.rename(self._write_temporary(path, data), path)
        self._sync({os.path.dirname(path)})

    def _write_temporary(self, path: str, data: bytes) -> str:
        temporary = f"{path}.{os.getpid()}-{secrets.token_hex(4)}.tmp"
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            _fill(fd, data)
        except BaseException:  # raised again; a half-written file would stay for good
            os.unlink(temporary)
            raise
        return temporary

    def touch(self, path: str) -> None:
        _fill(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666), b"")
        self._sync({os.path.dirname(path)})

    def move(self, moves: Sequence[Move]) -> None:
        directories = {os.path.dirname(m.target) for m in moves}
        unsynced = set(directories)
        for directory in sorted(directories):
            unsynced |= self._make_directory(directory)
        for m in moves:
            self._rename(m)
        self._sync(unsynced)

    def _rename(self, move: Move) -> None:
        for _ in range(_RENAME_TRIES):
            try:
                os.rename(move.source, move.target)
                return
            except FileNotFoundError:
                if _size(move.source) is None:
                    size = _size(move.target)
                    if size != move.size:
                        raise lost(move, size) from None
                    return
                # The source is there, so the directory is not: an overwrite by another job removed it while empty.
                self._sync(self._make_directory(os.path.dirname(move.target)))
        raise FileNotFoundError(errno.ENOENT, "its directory keeps being removed", move.target)

    def rename_directory(self, source: str, target: str) -> bool:
        # With the slash, a file that was put there a moment ago is not renamed; a link to a directory has none.
        named = source if os.path.islink(source) else f"{source}/"
        try:
            os.rename(named, target)
        except (FileNotFoundError, NotADirectoryError):
            return False
        self._sync({os.path.dirname(source), os.path.dirname(target)})
        return True

    def remove(self, paths: Iterable[str]) -> None:
        changed = set()
        for path in paths:
            try:
                os.unlink(path)
                changed.add(os.path.dirname(path))
            except (FileNotFoundError, NotADirectoryError):
                pass
        self._sync(changed)

    def remove_tree(self, path: str) -> None:
        pending = [path]
        directories = []
        while pending:
            directory = pending.pop()
            directories.append(directory)
            files, below = self._entries(directory)
            for name in files:
                _ignore_missing(_join(directory, name), os.unlink)
            pending.extend(_join(directory, name) for name in below)
        for directory in reversed(directories):
            _ignore_missing(directory, os.rmdir)
        self._sync({os.path.dirname(path)})

    def remove_empty(self, directories: Iterable[str]) -> None:
        changed = set()
        for directory in directories:
            try:
                os.rmdir(directory)
                changed.add(os.path.dirname(directory))
            except OSError as e:
                if e.errno not in {errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT, errno.ENOTDIR, errno.EBUSY}:
                    raise
        self._sync(changed)

    def _sync(self, directories: Iterable[str]) -> None:
        for directory in sorted(directories):
            try:
                fd = os.open(directory, os.O_RDONLY)
            except (FileNotFoundError, NotADirectoryError):  # removed since, so there is no entry left to keep
                continue
            try:
                os.fsync(fd)
            finally:
                os.close(fd)


def _join(directory: str, name: str) -> str:
    return f"{directory.rstrip('/')}/{name}" if directory and name else directory or name


def _size(path: str) -> int | None:
    try:
        return os.lstat(path).st_size
    except (FileNotFoundError, NotADirectoryError):
        return None


def _fill(fd: int, data: bytes) -> None:
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        os.fsync(fd)
    finally:
        os.close(fd)


def _ignore_missing(path: str, remove: object) -> None:
    try:
        remove(path)  # type: ignore[operator]
    except (FileNotFoundError, NotADirectoryError):
        pass
