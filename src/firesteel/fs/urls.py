"""File systems by URL, for the places that options name."""

from __future__ import annotations

from typing import Any


def open_url(url: str) -> tuple[Any, str]:
    """The fsspec file system that `url` means, and the path on it.

    Raises ImportError when its client is not installed, ValueError when there is no such kind of URL.
    """
    import fsspec

    files, path = fsspec.core.url_to_fs(url)
    return files, path


def file_system(protocol: str, **options: Any) -> Any:
    """The fsspec file system of a protocol. Raises as `open_url` does, or OSError when it cannot be reached."""
    import fsspec

    return fsspec.filesystem(protocol, **options)
