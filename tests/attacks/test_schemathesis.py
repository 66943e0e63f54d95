"""The OpenAPI document, taken at its word: schemathesis sends what it allows and what it does not, always the same.

No answer is a 5xx, and each JSON answer is what the document says it would be. Ids of jobs that are there take the place of
every other drawn id, else nearly all answers would be that there is none.
"""

from __future__ import annotations

import copy
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest
import requests
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Unsatisfiable
from tests.rest.desk import ADMIN, Client
from tests.rest.flink_world import FAILED, FINISHED, RUNNING, SOURCE, STOPPED, FlinkWorld
from tests.rest.native_people import ALICE

from firesteel.ha.protocols import Epoch
from firesteel.types import vertex_id

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what it imports is deprecated here and there
    import schemathesis
    from schemathesis import GenerationMode
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi.checks import response_schema_conformance

pytestmark = [pytest.mark.xdist_group("schemathesis"), pytest.mark.filterwarnings("ignore::DeprecationWarning")]

BASE = "http://localhost:8081"
THERE = {
    "jobid": (RUNNING, FINISHED, FAILED, STOPPED),
    "applicationid": (RUNNING, FINISHED, FAILED, STOPPED),
    "vertexid": (vertex_id(SOURCE),),
    "subtaskindex": (0,),
    "name": ("stdout", "events"),
    "filename": ("node.log",),
    "attempt": (1, 0),
}


class Drawn:
    """What schemathesis asks a desk with jobs of every kind."""

    def __init__(self, world: FlinkWorld, document: dict[str, Any] | None = None) -> None:
        self.world = world
        world.desk.node.own_epoch = Epoch(1)  # a node that leads
        self.schema = schemathesis.openapi.from_dict(document or world.desk.app.openapi())
        self.told: Counter[int] = Counter()
        self._number = 0

    def play(self, examples: int, only: str = "") -> None:
        """Each operation, as often with what it takes as with what it does not."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # hypothesis and schemathesis have opinions on how they are used
            for number, result in enumerate(self.schema.get_all_operations()):
                found: Any = result
                operation = found.ok()
                if operation.path.endswith("/events") or (only and operation.path != only):
                    continue
                client = self.world.desk.client(ADMIN if number % 3 else ALICE)
                for mode in GenerationMode:
                    self._play(client, operation, mode, examples)

    def _play(self, client: Client, operation: Any, mode: GenerationMode, examples: int) -> None:
        @seed(2020)
        @settings(
            max_examples=examples,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.explicit, Phase.generate],
        )
        @given(case=operation.as_strategy(generation_mode=mode))
        def ask(case: Any) -> None:
            self._number += 1
            if self._number % 2:
                for name, there in THERE.items():
                    if name in case.path_parameters:
                        case.path_parameters[name] = there[self._number // 2 % len(there)]
            self._ask(client, case)

        try:
            ask()
        except Unsatisfiable:
            assert mode is GenerationMode.NEGATIVE  # an operation without parameters takes everything

    def _ask(self, client: Client, case: Any) -> None:
        try:
            sent = requests.Request(**case.as_transport_kwargs(base_url=BASE)).prepare()
            method, url, headers = str(sent.method), str(sent.url), dict(sent.headers)
            answer = client.request(method, url, content=sent.body or b"", headers=headers)
        except (requests.RequestException, httpx.InvalidURL, UnicodeError):
            return  # nothing that this client could send
        self.told[answer.status_code] += 1
        case.validate_response(answer, checks=[not_a_server_error, response_schema_conformance])


@pytest.mark.slow
def test_the_document_is_kept(tmp_path: Path) -> None:
    drawn = Drawn(FlinkWorld(tmp_path))
    drawn.play(examples=5)
    assert drawn.told[200] > 100
    assert drawn.told[400] > 100
    assert sum(drawn.told.values()) > 600


@pytest.mark.slow
def test_a_document_that_is_not_kept_is_noticed(tmp_path: Path) -> None:
    """Else the above would say nothing."""
    world = FlinkWorld(tmp_path)
    document = copy.deepcopy(world.desk.app.openapi())
    document["components"]["schemas"]["WhoAmI"]["properties"]["name"] = {"type": "integer"}
    with pytest.raises(BaseExceptionGroup, match="Schemathesis"):
        Drawn(world, document).play(examples=2, only="/whoami")


@pytest.mark.integration
@pytest.mark.timeout(900)
def test_the_document_is_kept_for_long(tmp_path: Path) -> None:
    """The same with more examples of each operation; more still would be most of what CI has."""
    drawn = Drawn(FlinkWorld(tmp_path))
    drawn.play(examples=40)
    assert sum(drawn.told.values()) > 3_000
