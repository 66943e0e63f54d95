"""What every high-availability backend must do, sentence by sentence of `firesteel.ha.protocols`, as classes of tests.

The author of a backend derives a test class from each, in a module of tests that has a fixture `backend`: a BackendUnderTest,
fresh for each test. Needs pytest.
"""

from __future__ import annotations

import pytest

for _module in ("harness", "store", "fencing", "election"):
    pytest.register_assert_rewrite(f"{__name__}.{_module}")  # so that an assert which fails shows its values

from firesteel.testing.ha_contract.election import ElectionContract  # noqa: E402
from firesteel.testing.ha_contract.fencing import FencingContract  # noqa: E402
from firesteel.testing.ha_contract.harness import LONG_LEASE, BackendUnderTest  # noqa: E402
from firesteel.testing.ha_contract.store import StateStoreContract  # noqa: E402

__all__ = ["LONG_LEASE", "BackendUnderTest", "ElectionContract", "FencingContract", "StateStoreContract"]
