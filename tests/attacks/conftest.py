"""One node for nearly all attacks. Its jobs run on an engine that never answers, so they cost no JVM."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from tests.attacks.attacked_node import UNLIMITED, AttackedNode, People, SilentEngine
from tests.attacks.canaries import CONFIGURATION, ENVIRONMENT


@pytest.fixture(scope="session")
def silent_engine() -> Iterator[SilentEngine]:
    with SilentEngine() as engine:
        yield engine


@pytest.fixture(scope="session")
def node(silent_engine: SilentEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AttackedNode]:
    """Every attack on it must leave it without a traceback in its log."""
    root = tmp_path_factory.mktemp("attacked")
    settings = root / "settings"
    settings.mkdir()
    (settings / "config.yaml").write_text(json.dumps(CONFIGURATION))
    overrides = {
        "engine.master": f"sc://localhost:{silent_engine.port}",
        "engine.slots": "200",
        "blob.max-size": "4m",
        "rest.server.max-content-length": "1m",
        **UNLIMITED,
    }
    environ = {**ENVIRONMENT, "FIRESTEEL_CONF_DIR": str(settings)}
    with AttackedNode(root / "state", overrides, environ) as made:
        yield made
        assert made.process is not None
        assert made.process.poll() is None, "the node did not survive"
    assert "Traceback" not in made.log_text(), made.log_text()[-5000:]


@pytest.fixture(scope="session")
def people(node: AttackedNode) -> Iterator[People]:
    with node.people() as made:
        yield made
