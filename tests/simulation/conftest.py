"""Thousands of schedules take minutes: every run plays a fifth of them, and CI all (`--all-schedules`)."""

from __future__ import annotations

import pytest

SHARE = 5


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--all-schedules"):
        return
    mine = [
        i
        for i in items
        if i.path.name == "test_schedules.py" and isinstance(i, pytest.Function) and hasattr(i, "callspec")
    ]
    seen: dict[str, int] = {}
    dropped = []
    for item in mine:
        number = seen[item.originalname] = seen.get(item.originalname, -1) + 1
        if number % SHARE:
            dropped.append(item)
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = [i for i in items if i not in dropped]
