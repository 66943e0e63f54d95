"""Which cases of a test `make test` runs, where there are many of one kind."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def samples(cases: Iterable[Any], quick: int = 1) -> list[Any]:
    """The first `quick` of the cases as they are, the others marked `slow`: `make test-rest` runs them."""
    return [
        case
        if number < quick
        else pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow)
        for number, case in enumerate(cases)
    ]
