"""Sessions of jobs without code: what Spark compiled for one is there for the next."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Iterator

import pytest
from tests.conftest import Cluster

from firesteel.engines.launcher import attach
from firesteel.engines.record import EngineRecord
from firesteel.spark_connect.plain_session import SETTINGS, begin_plainly, model_of
from firesteel.spark_connect.session import EngineSession

pytestmark = pytest.mark.spark


@pytest.fixture
def engine(cluster: Cluster) -> EngineRecord:
    """As if it were another one each time: with a model session of its own."""
    return dataclasses.replace(cluster.engine(), ui_secret=uuid.uuid4().hex)


@pytest.fixture
def session(engine: EngineRecord) -> Iterator[EngineSession]:
    made = new_session(engine)
    yield made
    made.close()


def new_session(engine: EngineRecord) -> EngineSession:
    return EngineSession(engine.remote(str(uuid.uuid4())))


def settings_of(session: EngineSession) -> dict[str, str]:
    return {name: session.spark.conf.get(name) for name in SETTINGS}


def test_copies_have_no_class_loader_and_share_nothing_else(engine: EngineRecord) -> None:
    one, other = new_session(engine), new_session(engine)
    assert begin_plainly(one, engine)
    assert begin_plainly(other, engine)
    assert settings_of(one) == settings_of(other) == SETTINGS
    one.configure({"spark.sql.shuffle.partitions": "3"})
    one.spark.range(1).createOrReplaceTempView("mine")
    assert other.spark.conf.get("spark.sql.shuffle.partitions") != "3"
    assert not other.spark.catalog.tableExists("mine")
    later = new_session(engine)
    assert begin_plainly(later, engine)
    assert not later.spark.catalog.tableExists("mine")
    for session in (one, other, later):
        session.close()


def test_session_that_was_ended_before_it_began_stays_ended(engine: EngineRecord) -> None:
    """I2, I7: whoever calls an attempt off ends its session first; a driver that comes late finds no way in."""
    session_id = str(uuid.uuid4())
    ended = EngineSession(engine.remote(session_id))
    ended.interrupt()
    ended.release()
    late = EngineSession(engine.remote(session_id))
    assert not begin_plainly(late, engine)
    with pytest.raises(Exception, match="SESSION_CLOSED"):
        late.spark.sql("SELECT 1").collect()


def test_session_that_has_begun_is_left_as_it_is(engine: EngineRecord, session: EngineSession) -> None:
    session.spark.range(1).createOrReplaceTempView("mine")
    assert not begin_plainly(session, engine)
    assert session.spark.catalog.tableExists("mine")


def test_without_a_model_there_is_a_session_all_the_same(engine: EngineRecord, session: EngineSession) -> None:
    first = new_session(engine)
    assert begin_plainly(first, engine, now=0.0)
    first.close()
    model = EngineSession(engine.remote(model_of(engine, 0.0)))
    model.interrupt()
    model.release()
    assert not begin_plainly(session, engine, now=0.0)
    assert session.spark.sql("SELECT 1").count() == 1


def test_engine_of_somebody_else_gets_no_model(engine: EngineRecord, session: EngineSession) -> None:
    theirs = attach(f"sc://localhost:{engine.port}", engine.token)
    assert not begin_plainly(session, theirs)
    assert not begin_plainly(session, dataclasses.replace(engine, ui_secret=""))
    assert set(settings_of(session).values()) == {"true"}


def test_model_is_another_one_each_day_and_for_each_engine(engine: EngineRecord) -> None:
    assert model_of(engine, 0.0) == model_of(engine, 86399.0)
    assert model_of(engine, 0.0) != model_of(engine, 86400.0)
    assert model_of(engine, 0.0) != model_of(dataclasses.replace(engine, ui_secret="other"), 0.0)
    assert uuid.UUID(model_of(engine, 0.0)).version == 4
