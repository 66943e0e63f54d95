"""Class-data archives: most of an engine's start-up is loading classes, and the JVM can map them ready-made.

Java 25 and later write an AOT cache, Java 17 to 24 a dynamic CDS archive; each belongs to one JVM build and one class path,
which is what its file name says. A stale or broken archive is ignored by the JVM, so it can only ever cost time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from firesteel.engines.java import Java


def archive_path(cache_dir: Path, java: Java, class_path: Sequence[Path]) -> Path:
    digest = hashlib.sha256()
    for part in (java.executable.resolve(), java.version, java.vendor):
        digest.update(f"{part}\n".encode())
    for jar in class_path:
        stat = jar.stat()
        digest.update(f"{jar}\t{stat.st_size}\t{stat.st_mtime_ns}\n".encode())
    return (
        cache_dir / "class-archives" / f"java{java.feature}-{digest.hexdigest()[:16]}.{'aot' if _aot(java) else 'jsa'}"
    )


def use_options(java: Java, archive: Path) -> list[str]:
    if not archive.exists():
        return []
    if _aot(java):
        return [f"-XX:AOTCache={archive}"]
    # The log lines would tell of classes that the archive holds in another version: harmless, and many.
    return [f"-XX:SharedArchiveFile={archive}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]


def record_options(java: Java, target: Path) -> list[str]:
    if _aot(java):
        return [f"-XX:AOTCacheOutput={target}"]
    return [f"-XX:ArchiveClassesAtExit={target}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]


def _aot(java: Java) -> bool:
    return java.feature >= 25
