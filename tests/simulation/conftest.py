"""Thousands of schedules take minutes: the first of each kind are quick, and the others are marked slow."""

from __future__ import annotations

from collections import Counter

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Before `-m` is looked at."""
    seen: Counter[str] = Counter()
    for item in items:
        if item.path.name == "test_schedules.py" and isinstance(item, pytest.Function) and hasattr(item, "callspec"):
            if seen[item.originalname]:
                item.add_marker(pytest.mark.slow)
            seen[item.originalname] += 1
