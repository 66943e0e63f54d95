"""The worlds as fixtures, and `os` put back into the local store after each test."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from firesteel.fs import local

if TYPE_CHECKING:
    from tests.sinks.sink_model import LocalWorld, MemoryWorld, World
else:
    from sink_model import LocalWorld, MemoryWorld, World


@pytest.fixture(autouse=True)
def _real_os() -> Iterator[None]:
    yield
    setattr(local, "os", os)  # noqa: B010


@pytest.fixture(params=["local", "memory"])
def make_world(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], World]:
    return MemoryWorld if request.param == "memory" else lambda: LocalWorld(tmp_path)


@pytest.fixture
def world(make_world: Callable[[], World]) -> World:
    return make_world()
