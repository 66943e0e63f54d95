"""Checks of uploaded archives before they are used (S24)."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import zipfile
from pathlib import Path

from firesteel.blob.archive_check import check_zip
from firesteel.blob.keys import BlobRef
from firesteel.rest.context import RestContext

MAX_ENTRIES = 20_000
MAX_TOTAL = 4 << 30
MAX_RATIO = 200.0


async def has_main(context: RestContext, ref: BlobRef) -> bool:
    """Whether the archive has a `__main__.py`. The archive is checked as a whole first. Raises InvalidRequestError."""
    return await _has(context, ref, ("__main__.py",))


async def has_module(context: RestContext, ref: BlobRef, module: str) -> bool:
    """Whether the archive has a module that `python -m` could run. Otherwise like `has_main`."""
    path = module.replace(".", "/")
    return await _has(context, ref, (f"{path}.py", f"{path}.pyc", f"{path}/__main__.py"))


async def _has(context: RestContext, ref: BlobRef, names: tuple[str, ...]) -> bool:
    here = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="upload-", dir=context.directory))
    try:
        path = await context.blobs.materialize(ref, here)
        return await context.archives.run(_look, path, names)
    finally:
        await asyncio.to_thread(shutil.rmtree, here, True)


def _look(path: Path, names: tuple[str, ...]) -> bool:
    check_zip(path, max_entries=MAX_ENTRIES, max_total=MAX_TOTAL, max_ratio=MAX_RATIO)
    with zipfile.ZipFile(path) as archive:
        return not set(names).isdisjoint(archive.namelist())
