"""Asserts in the contract, which is no test module itself, show their values too."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("tests.contracts.ha_contract")
