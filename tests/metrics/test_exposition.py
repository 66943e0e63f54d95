"""What Prometheus reads: every line well-formed, whatever a job is called."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from firesteel.metrics.declarations import DECLARED, JOB_STATE, STORE_SECONDS, SUBMISSIONS
from firesteel.metrics.exposition import exposition, number
from firesteel.metrics.metric import OF_JOBS
from firesteel.metrics.reference import GROUPS, names_of, page
from firesteel.metrics.registry import MetricRegistry

ROOT = Path(__file__).resolve().parents[2]
LINE = re.compile(r'[a-z_]+(\{[a-z_]+="(?:[^"\\\n]|\\["\\n])*"(?:,[a-z_]+="(?:[^"\\\n]|\\["\\n])*")*\})? \S+')
NASTY = 'a"} 1\nfiresteel_election_leading 0\\'


def test_every_line_is_well_formed_whatever_a_job_is_called() -> None:
    """S15"""
    registry = MetricRegistry()
    registry.set(JOB_STATE, 1, "1" * 32, NASTY, "me", "RUNNING")
    registry.observe(STORE_SECONDS, 0.3, "put")
    text = exposition(registry.readings())
    lines = [line for line in text.splitlines() if not line.startswith("# ")]
    assert all(LINE.fullmatch(line) for line in lines)
    assert not any(line.startswith("firesteel_election_leading") for line in lines)
    assert (
        f'firesteel_job_state{{job_id="{"1" * 32}",job_name="a\\"}} 1\\nfiresteel_election_leading 0\\\\",owner="me",'
        'state="RUNNING"} 1'
    ) in lines


def test_buckets_are_cumulative_and_end_with_all() -> None:
    registry = MetricRegistry()
    for seconds in (0.0001, 0.3, 99.0):
        registry.observe(STORE_SECONDS, seconds, "put")
    lines = [line for line in exposition(registry.readings()).splitlines() if "operation_seconds" in line]
    counts = [int(line.rpartition(" ")[2]) for line in lines if "_bucket" in line]
    assert counts == sorted(counts)
    assert (counts[0], counts[-1]) == (1, 3)
    assert 'firesteel_store_operation_seconds_bucket{operation="put",le="+Inf"} 3' in lines
    assert 'firesteel_store_operation_seconds_count{operation="put"} 3' in lines


def test_a_meter_is_a_counter_and_a_rate() -> None:
    registry = MetricRegistry()
    registry.count(SUBMISSIONS, "accepted")
    text = exposition(registry.readings())
    assert '\nfiresteel_dispatcher_submissions_total{outcome="accepted"} 1\n' in text
    assert "# TYPE firesteel_dispatcher_submissions_per_second gauge" in text


def test_groups_can_be_left_out() -> None:
    registry = MetricRegistry()
    registry.set(JOB_STATE, 1, "1", "n", "me", "RUNNING")
    assert "firesteel_job_state" not in exposition(registry.readings(), without=OF_JOBS)


@pytest.mark.parametrize(
    ("value", "text"), [(3.0, "3"), (0.25, "0.25"), (1e300, "1e+300"), (float("inf"), "+Inf"), (float("nan"), "NaN")]
)
def test_numbers_are_those_of_the_format(value: float, text: str) -> None:
    assert number(value) == text


# -- what is made of the table --------------------------------------------------------------------------------------


def test_the_reference_page_is_up_to_date() -> None:
    assert (ROOT / "docs/reference/metrics.md").read_text() == page(), "run `make docs`"
    assert {m.group for m in DECLARED} == set(GROUPS)


EXPOSED = {name for metric in DECLARED for name in names_of(metric)}
_NAME = re.compile(r"\bfiresteel_[a-z_]+")


def test_alerts_and_the_dashboard_ask_for_metrics_that_there_are() -> None:
    rules = yaml.safe_load((ROOT / "deploy/metrics/firesteel-alerts.yml").read_text())
    asked = [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    dashboard = json.loads((ROOT / "deploy/metrics/grafana-dashboard.json").read_text())
    asked += [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    asked += [variable["query"] for variable in dashboard["templating"]["list"]]
    names = {name for expression in asked for name in _NAME.findall(expression)}
    assert len(names) > 30
    assert names <= EXPOSED
