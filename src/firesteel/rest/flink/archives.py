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
    here = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="upload-", dir=directory))
    try:
        path = await blobs.materialize(ref, here)
        return await asyncio.get_running_loop().run_in_executor(_THREAD, _has_main, path)
    finally:
        await asyncio.to_thread(shutil.rmtree, here, True)


def _has_main(path: Path) -> bool:
    check_zip(path, max_entries=MAX_ENTRIES, max_total=MAX_TOTAL, max_ratio=MAX_RATIO)
    with zipfile.ZipFile(path) as archive:
        return "__main__.py" in archive.namelist()
