"""The reporter `otlp`: OpenTelemetry's protocol, as protobuf over HTTP. Needs `firesteel[otel]`.

The values are ours already, so no SDK keeps them a second time: each report is one message with all of them. Counters and
histograms are cumulative since the node started.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence

import httpx
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AGGREGATION_TEMPORALITY_CUMULATIVE,
    Gauge,
    Histogram,
    HistogramDataPoint,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric as OtlpMetric
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from firesteel.metrics.metric import Kind, Metric
from firesteel.metrics.registry import Labels, Reading
from firesteel.metrics.reporters import ReporterSetup

TIMEOUT_SECONDS = 10.0
_UNITS = {"seconds": "s", "bytes": "By", "": "1"}


class OtlpReporter:
    def __init__(self, setup: ReporterSetup, *, now: Callable[[], int] = time.time_ns) -> None:
        self._setup = setup
        self._now = now
        self._started = now()
        headers = {**setup.otlp_headers, "content-type": "application/x-protobuf"}
        self._client = httpx.Client(headers=headers, timeout=TIMEOUT_SECONDS, trust_env=False)

    def report(self, readings: Sequence[Reading]) -> None:
        answer = self._client.post(self._setup.otlp_endpoint, content=self.message(readings).SerializeToString())
        answer.raise_for_status()
        said = ExportMetricsServiceResponse.FromString(answer.content).partial_success
        if said.rejected_data_points:
            raise ValueError(f"{said.rejected_data_points} values were refused: {said.error_message}")

    def close(self) -> None:
        self._client.close()

    def message(self, readings: Sequence[Reading]) -> ExportMetricsServiceRequest:
        attributes = {
            "service.name": "firesteel",
            "service.namespace": self._setup.cluster_id,
            "service.instance.id": self._setup.instance,
            "service.version": self._setup.version,
        }
        metrics = [metric for reading in readings for metric in self._metrics(reading)]
        scope = ScopeMetrics(scope=InstrumentationScope(name="firesteel", version=self._setup.version), metrics=metrics)
        resource = Resource(attributes=_attributes(attributes))
        return ExportMetricsServiceRequest(resource_metrics=[ResourceMetrics(resource=resource, scope_metrics=[scope])])

    def _metrics(self, reading: Reading) -> list[OtlpMetric]:
        metric = reading.metric
        name = f"firesteel.{metric.group.value}.{metric.name}"
        made = functools.partial(OtlpMetric, name=name, description=metric.description, unit=_UNITS[metric.unit])
        if metric.kind is Kind.HISTOGRAM:
            points = [self._histogram(reading, labels) for labels in reading.histograms]
            data = Histogram(aggregation_temporality=AGGREGATION_TEMPORALITY_CUMULATIVE, data_points=points)
            return [made(histogram=data)]
        numbers = self._numbers(metric, reading.values)
        if metric.kind is Kind.GAUGE:
            return [made(gauge=Gauge(data_points=numbers))]
        total = Sum(aggregation_temporality=AGGREGATION_TEMPORALITY_CUMULATIVE, is_monotonic=True, data_points=numbers)
        counted = made(sum=total)
        if metric.kind is Kind.COUNTER:
            return [counted]
        rate = Gauge(data_points=self._numbers(metric, reading.rates))
        return [counted, OtlpMetric(name=f"{name}.rate", description=metric.description, unit="1/s", gauge=rate)]

    def _numbers(self, metric: Metric, values: Mapping[Labels, float]) -> list[NumberDataPoint]:
        return [
            NumberDataPoint(
                attributes=_attributes(dict(zip(metric.labels, labels, strict=True))),
                start_time_unix_nano=self._started,
                time_unix_nano=self._now(),
                as_double=value,
            )
            for labels, value in values.items()
        ]

    def _histogram(self, reading: Reading, labels: Labels) -> HistogramDataPoint:
        value = reading.histograms[labels]
        return HistogramDataPoint(
            attributes=_attributes(dict(zip(reading.metric.labels, labels, strict=True))),
            start_time_unix_nano=self._started,
            time_unix_nano=self._now(),
            count=value.count,
            sum=value.total,
            bucket_counts=value.counts,
            explicit_bounds=value.bounds,
        )


def _attributes(values: Mapping[str, str]) -> list[KeyValue]:
    return [KeyValue(key=key, value=AnyValue(string_value=value)) for key, value in values.items()]
