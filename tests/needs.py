"""What some tests need beyond Python and Java: missing, it is a skip that says how to get it, and a failure in CI."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import NoReturn

import pytest

from firesteel_chaos.hosts import missing as missing_for_hosts

ROOT = Path(__file__).parents[1]


def missing(what: str, how: str) -> NoReturn:
    message = f"{what} is not here; to get it: {how}"
    if os.environ.get("CI"):
        pytest.fail(message)
    pytest.skip(message)


def jars(name: str) -> Path:
    """A directory of jars that scripts/fetch-test-jars fetches."""
    directory = ROOT / ".cache" / "test-jars" / name
    if not (directory / ".complete").exists():
        missing(f"the jars of {name}", "scripts/fetch-test-jars")
    return directory


def package(name: str, extra: str) -> None:
    if importlib.util.find_spec(name) is None:
        missing(f"the package {name}", f".venv/bin/pip install -e '.[{extra}]'")


def hosts() -> None:
    """What hosts in network namespaces need."""
    lack = missing_for_hosts()
    if lack is not None:
        missing(*lack)
