"""Reporters: found by name, sent everything, and none of their troubles is the node's."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.needs import package

from firesteel.config import Configuration, load_configuration
from firesteel.entrypoint import node_metrics
from firesteel.entrypoint.node_metrics import measuring, reporter_setup
from firesteel.errors import InvalidConfigError
from firesteel.metrics.declarations import (
    CPU,
    EPOCH,
    INFO,
    LOOP_LAG,
    REPORTS,
    RESIDENT,
    RESTARTS,
    STORE_SECONDS,
    SUBMISSIONS,
)
from firesteel.metrics.registry import MetricRegistry, Reading
from firesteel.metrics.reporters import MetricReporter, ReporterSetup, load_reporters

SETUP = ReporterSetup("c1", "host:1", "0.1", "http://127.0.0.1:9/v1/metrics", {"authorization": "Bearer canary"})


class Collector(ThreadingHTTPServer):
    """Stands in for an OpenTelemetry collector: keeps what it is sent."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        self.answer = b""
        self.status = 200
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                collector.bodies.append(self.rfile.read(int(self.headers["content-length"])))
                collector.headers.append({k.lower(): v for k, v in self.headers.items()})
                self.send_response(collector.status)
                self.send_header("content-length", str(len(collector.answer)))
                self.end_headers()
                self.wfile.write(collector.answer)

            def log_message(self, *_: object) -> None:
                pass

        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1/metrics"


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def configuration(tmp_path: Path, **options: str) -> Configuration:
    overrides = {f"metrics.{key.replace('_', '-').replace('--', '.')}": value for key, value in options.items()}
    return load_configuration(file=None, environ={"HOME": str(tmp_path)}, overrides=overrides)


# -- found by name --------------------------------------------------------------------------------------------------


def test_one_that_is_not_installed_is_named() -> None:
    with pytest.raises(InvalidConfigError, match="no metric reporter 'graphite' is installed"):
        load_reporters(["graphite"], SETUP)


def test_ours_is_installed_under_its_entry_point() -> None:
    package("opentelemetry.proto", "otel")
    made = load_reporters(["otlp"], SETUP)
    assert list(made) == ["otlp"]
    made["otlp"].close()


def test_headers_have_names_and_values_and_are_not_repeated(tmp_path: Path) -> None:
    """S27"""
    good = configuration(tmp_path, otlp__headers="authorization=Bearer canary, x=y")
    assert reporter_setup(good).otlp_headers == {"authorization": "Bearer canary", "x": "y"}
    assert "canary" not in repr(good)
    with pytest.raises(InvalidConfigError) as caught:
        reporter_setup(configuration(tmp_path, otlp__headers="canary"))
    assert "canary" not in str(caught.value)


# -- sent everything ------------------------------------------------------------------------------------------------


def filled() -> MetricRegistry:
    registry = MetricRegistry()
    registry.set(EPOCH, 7)
    registry.count(RESTARTS, by=2)
    registry.count(SUBMISSIONS, "accepted", by=5)
    registry.observe(STORE_SECONDS, 0.3, "put")
    return registry


def test_otlp_sends_what_its_own_messages_can_be_read_as(collector: Collector) -> None:
    package("opentelemetry.proto", "otel")
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

    from firesteel.metrics.otlp import OtlpReporter

    setup = ReporterSetup("c1", "host:1", "0.1", collector.url, {"authorization": "Bearer canary"})
    reporter = OtlpReporter(setup, now=lambda: 1_000)
    reporter.report(filled().snapshot())
    reporter.close()
    assert collector.headers[0]["authorization"] == "Bearer canary"
    assert collector.headers[0]["content-type"] == "application/x-protobuf"
    (sent,) = ExportMetricsServiceRequest.FromString(collector.bodies[0]).resource_metrics
    told = {a.key: a.value.string_value for a in sent.resource.attributes}
    assert (told["service.name"], told["service.namespace"], told["service.instance.id"]) == (
        "firesteel",
        "c1",
        "host:1",
    )
    metrics = {m.name: m for m in sent.scope_metrics[0].metrics}
    (epoch,) = metrics["firesteel.election.epoch"].gauge.data_points
    assert epoch.as_double == 7
    restarts = metrics["firesteel.dispatcher.restarts"].sum
    assert restarts.is_monotonic
    assert [p.as_double for p in restarts.data_points] == [2]
    accepted = {
        p.attributes[0].value.string_value: p for p in metrics["firesteel.dispatcher.submissions"].sum.data_points
    }
    assert accepted["accepted"].as_double == 5
    assert metrics["firesteel.dispatcher.submissions.rate"].gauge.data_points
    (put,) = metrics["firesteel.store.operation"].histogram.data_points
    assert (put.count, put.sum, len(put.bucket_counts)) == (1, 0.3, len(put.explicit_bounds) + 1)
    assert metrics["firesteel.store.operation"].unit == "s"


def test_otlp_says_that_values_were_refused(collector: Collector) -> None:
    package("opentelemetry.proto", "otel")
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
        ExportMetricsPartialSuccess,
        ExportMetricsServiceResponse,
    )

    from firesteel.metrics.otlp import OtlpReporter

    said = ExportMetricsPartialSuccess(rejected_data_points=3, error_message="too old")
    collector.answer = ExportMetricsServiceResponse(partial_success=said).SerializeToString()
    reporter = OtlpReporter(ReporterSetup("c1", "host:1", "0.1", collector.url))
    with pytest.raises(ValueError, match="3 values were refused: too old"):
        reporter.report(filled().snapshot())
    reporter.close()


# -- by the node ----------------------------------------------------------------------------------------------------


class Remembering:
    def __init__(self) -> None:
        self.reports: list[Sequence[Reading]] = []
        self.failing = False
        self.closed = False
        self.reported = threading.Event()

    def report(self, readings: Sequence[Reading]) -> None:
        self.reports.append(readings)
        self.reported.set()
        if self.failing:
            raise OSError("nobody listens")

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def reporter(monkeypatch: pytest.MonkeyPatch) -> Remembering:
    made = Remembering()

    def load(_names: Sequence[str], _setup: ReporterSetup) -> dict[str, MetricReporter]:
        return {"remembering": made}

    monkeypatch.setattr(node_metrics, "load_reporters", load)
    return made


def test_a_node_sends_its_own_numbers_and_once_more_when_it_ends(tmp_path: Path, reporter: Remembering) -> None:
    async def main() -> None:
        registry = MetricRegistry()
        async with measuring(configuration(tmp_path, report_interval="50 ms"), registry):
            await asyncio.to_thread(reporter.reported.wait, 10)
        assert reporter.closed
        assert len(reporter.reports) >= 2
        told = {r.metric: r.values for r in reporter.reports[0]}
        assert {INFO, CPU, RESIDENT} <= set(told)
        assert told[RESIDENT][()] > 1e6
        assert registry.value(REPORTS, "remembering", "sent") >= 1

    asyncio.run(main())


async def counted(registry: MetricRegistry, outcome: str, number: int) -> None:
    async with asyncio.timeout(10):
        while registry.value(REPORTS, "remembering", outcome) < number:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def test_a_reporter_that_fails_goes_on(tmp_path: Path, reporter: Remembering) -> None:
    async def main() -> None:
        registry = MetricRegistry()
        reporter.failing = True
        async with measuring(configuration(tmp_path, report_interval="20 ms"), registry):
            await counted(registry, "failed", 2)
            reporter.failing = False
            await counted(registry, "sent", 1)

    asyncio.run(main())


def test_a_loop_that_was_blocked_is_seen_to_be_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_metrics, "LOOK_SECONDS", 0.01)

    async def main() -> None:
        registry = MetricRegistry()
        async with measuring(configuration(tmp_path), registry):
            await asyncio.sleep(0.005)
            threading.Event().wait(0.3)  # what nothing in a node may do
            await asyncio.sleep(0.05)
        assert registry.histogram(LOOP_LAG).quantile(1.0) >= 0.2

    asyncio.run(main())
