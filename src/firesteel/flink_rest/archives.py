"""Archives that were uploaded, looked at before anything trusts them (S24)."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from firesteel.blob.archive_check import check_zip
from firesteel.blob.keys import BlobRef
from firesteel.blob.store import BlobStore

MAX_ENTRIES = 20_000
MAX_TOTAL = 4 << 30
MAX_RATIO = 200.0

_THREAD = ThreadPoolExecutor(1, thread_name_prefix="archives")
"""Unpacking may take long: uploads wait for each other then, and nothing else does."""


async def has_main(blobs: BlobStore, ref: BlobRef, directory: Path) -> bool:
    """Whether the archive has a `__main__.py`; it is checked as a whole first. Raises InvalidRequestError.

    `directory` is where a copy may stand meanwhile.
    """
    return await _has(blobs, ref, directory, ("__main__.py",))


async def has_module(blobs: BlobStore, ref: BlobRef, directory: Path, module: str) -> bool:
    """Whether the archive has a module that `python -m` could run. Otherwise as `has_main`."""
    path = module.replace(".", "/")
    return await _has(blobs, ref, directory, (f"{path}.py", f"{path}.pyc", f"{path}/__main__.py"))


async def _has(blobs: BlobStore, ref: BlobRef, directory: Path, names: tuple[str, ...]) -> bool:
    here = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="upload-", dir=directory))
    try:
        path = await blobs.materialize(ref, here)
        return await asyncio.get_running_loop().run_in_executor(_THREAD, _look, path, names)
    finally:
        await asyncio.to_thread(shutil.rmtree, here, True)


def _look(path: Path, names: tuple[str, ...]) -> bool:
    check_zip(path, max_entries=MAX_ENTRIES, max_total=MAX_TOTAL, max_ratio=MAX_RATIO)
    with zipfile.ZipFile(path) as archive:
        return not set(names).isdisjoint(archive.namelist())
