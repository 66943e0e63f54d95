"""Two owners on one node: what one leaves in the catalogue of Spark is nothing to the other (S22)."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.attacks.attacked_node import UNLIMITED, AttackedNode, Caller, until
from tests.support.engine_shape import QUICK_JAVA

from firesteel.engines.record import EngineDirectory

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("attacks-between-owners")]

LEAVE = b"""
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
spark.sql("select 'canary' as word").createOrReplaceGlobalTempView("left")
spark.sql("select 'canary' as word").write.mode("overwrite").saveAsTable("kept")
"""
LOOK = b"""
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
for name in ("global_temp.left", "default.kept"):
    try:
        print(name, spark.sql(f"select word from {name}").collect()[0][0])
    except Exception as error:
        print(name, getattr(error, "getErrorClass", lambda: error)())
"""


def run(caller: Caller, program: bytes) -> str:
    """What it printed."""
    script = {"kind": "script", "name": "s", "file": f"blob:{caller.upload(program)}/p.py"}
    job = caller.submit({"name": "catalogue", "vertices": [script]})
    status = until(lambda: (s := caller.get(f"/jobs/{job}").json()["state"]) in ("FINISHED", "FAILED") and s, 180)
    assert status == "FINISHED", caller.get(f"/jobs/{job}/exceptions").text
    return caller.get(f"/jobs/{job}/logs/stdout").text


def test_tables_and_global_views_of_one_owner_are_not_there_for_another(tmp_path: Path) -> None:
    """S22: the same owner finds them, so it is the engine that keeps them apart."""
    overrides = {
        "engine.master": "local[1]",
        "engine.jvm-options": QUICK_JAVA,
        "engine.memory": "512m",
        "engine.reuse": "false",
        **UNLIMITED,
    }
    with AttackedNode(tmp_path / "state", overrides) as node, node.people() as people:
        run(people.alice, LEAVE)
        assert run(people.alice, LOOK).splitlines() == ["global_temp.left canary", "default.kept canary"]
        assert "canary" not in run(people.bob, LOOK)
        records = EngineDirectory(node.cluster).alive()
        assert {r.spec.owner for r in records} == {"alice", "bob"}
        assert len({r.token for r in records}) == 2
        for caller, owner in ((people.alice, "alice"), (people.bob, "bob")):
            assert [e["owner"] for e in caller.get("/engines").json()["engines"]] == [owner]
            assert len(caller.get("/taskmanagers").json()["taskmanagers"]) == 1
        assert len(people.root.get("/engines").json()["engines"]) == 2
