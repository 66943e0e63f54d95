from __future__ import annotations

import os

import pytest


@pytest.fixture
def quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests that take very many steps, and in which nobody pulls the plug: they need not wait for the disk in each."""
    monkeypatch.setattr(os, "fsync", lambda _fd: None)
