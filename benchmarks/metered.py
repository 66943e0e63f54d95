"""All metric reporters on against off, by turns: submissions a second, trivial jobs one at a time and at many clients.

On: a scrape of `/metrics` and a report over OTLP every second, some fifteen times as often as usual. Off: neither. What is
counted as it happens is counted in both.
"""

from __future__ import annotations

import contextlib
import functools
import http.client
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from benchmarks import ha_submissions
from benchmarks.ha_submissions import PIPELINE, UNLIMITED, Door
from benchmarks.harness import Sample, Workbench, interleave, say, table
from benchmarks.rest_api import CLIENTS, Jobs, node, rate

from firesteel.jobgraph.load import load_pipeline
from firesteel.types import new_job_id

OFF, ON = "off", "on"
WARM_UP = 10
WARM_UP_SATURATED = 100
INTERVAL = 1.0
BUDGET = 0.97
SUBMISSIONS, LATENCY, RATE = "submissions a second", "one trivial job, ms", "trivial jobs a second"


def run(bench: Workbench, *, repetitions: int, rounds: int, jobs: int, submissions: int) -> dict[str, Any]:
    work = bench.folder("metrics")
    with collector() as endpoint:
        options = {
            OFF: {"metrics.prometheus": "false"},
            ON: {
                "metrics.reporters": "otlp",
                "metrics.report-interval": f"{INTERVAL:g} s",
                "metrics.otlp.endpoint": endpoint,
            },
        }
        with contextlib.ExitStack() as opened:
            submitting: dict[str, Callable[[], float]] = {}
            for kind, more in options.items():
                started = ha_submissions.node(work / f"waiting-{kind}", {**UNLIMITED, **more})
                address, token = opened.enter_context(started)
                opened.enter_context(scraped(address, token) if kind == ON else contextlib.nullcontext())
                submitting[kind] = functools.partial(submit, address, token, submissions)
            interleave(submitting, 1)
            say(f"metrics: {rounds} rounds of {submissions} submissions at {CLIENTS} clients")
            acknowledged = _samples(interleave(submitting, rounds))
        with contextlib.ExitStack() as opened:
            by_kind: dict[str, Callable[[], float]] = {}
            for kind, more in options.items():
                started_ = node(work / kind, master=bench.spec.master, memory=bench.spec.memory, more=more)
                local, _ = opened.enter_context(started_)
                assert local.token is not None
                opened.enter_context(scraped(local.address, local.token) if kind == ON else contextlib.nullcontext())
                by_kind[kind] = opened.enter_context(Jobs(local)).run
            say("metrics: warming up")
            interleave(by_kind, WARM_UP)
            for job in by_kind.values():
                rate(job, WARM_UP_SATURATED)
            say(f"metrics: {repetitions} jobs by turns, then {rounds} rounds of {jobs} at {CLIENTS} clients")
            latency = _samples(interleave(by_kind, repetitions))
            saturated = {kind: functools.partial(rate, job, jobs) for kind, job in by_kind.items()}
            rates = _samples(interleave(saturated, rounds))
    return _report(acknowledged, latency, rates, repetitions, submissions)


def _samples(measured: dict[str, list[float]]) -> dict[str, Sample]:
    return {kind: Sample.of(values) for kind, values in measured.items()}


def _report(
    acknowledged: dict[str, Sample],
    latency: dict[str, Sample],
    rates: dict[str, Sample],
    repetitions: int,
    submissions: int,
) -> dict[str, Any]:
    speed = latency[OFF].median / latency[ON].median
    more, gain = acknowledged[ON].over(acknowledged[OFF]), rates[ON].over(rates[OFF])
    rows = [
        [f"{SUBMISSIONS} at {CLIENTS} clients, off", acknowledged[OFF].show(digits=0), ""],
        ["… on", acknowledged[ON].show(digits=0), ""],
        ["… on over off, within the round", more.show(), f">= {BUDGET}"],
        [f"{LATENCY}, off", latency[OFF].show(digits=0, scale=1000), ""],
        ["… on", latency[ON].show(digits=0, scale=1000), ""],
        ["… off over on, of the medians", f"{speed:.2f}", f">= {BUDGET}"],
        [f"{RATE} at {CLIENTS} clients, off", rates[OFF].show(digits=1), ""],
        ["… on", rates[ON].show(digits=1), ""],
        ["… on over off, within the round", gain.show(), f">= {BUDGET}"],
    ]
    note = f"n={repetitions} by turns; {submissions} submissions a round. On: a scrape and an OTLP report every {INTERVAL:g} s."
    table("metrics with all reporters on and off", ["what", "measured", "budget"], rows, note)
    return {
        SUBMISSIONS: {kind: s.as_json() for kind, s in acknowledged.items()},
        "submissions_ratio": more.as_json(),
        LATENCY: {kind: Sample.of([v * 1000 for v in s.values]).as_json() for kind, s in latency.items()},
        "speed_ratio": speed,
        RATE: {kind: s.as_json() for kind, s in rates.items()},
        "rate_ratio": gain.as_json(),
    }


def submit(address: str, token: str, count: int) -> float:
    """Submissions a second, each acknowledged when it is durable. Engines never come: jobs wait."""
    graph = load_pipeline(PIPELINE).graph.to_json()

    def one(door: Door) -> None:
        door.ask("POST", "/jobs", f'{{"jobId": "{new_job_id()}", "graph": {graph}}}')

    return ha_submissions.rate(address, token, CLIENTS, count, one)


@contextlib.contextmanager
def scraped(address: str, token: str) -> Iterator[None]:
    """While the block lasts, somebody reads the metrics of the node."""
    over = threading.Event()

    def work() -> None:
        connection = http.client.HTTPConnection(urlsplit(address).netloc)
        while not over.wait(INTERVAL):
            connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {token}"})
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 200, answer.status

    thread = threading.Thread(target=work, name="scraper")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


class _Sink(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """A node that has ended breaks its connection off."""


@contextlib.contextmanager
def collector() -> Iterator[str]:
    """Takes what it is sent; gives its address."""
    with _Server(("127.0.0.1", 0), _Sink) as server:
        thread = threading.Thread(target=server.serve_forever, name="collector")
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/v1/metrics"
        finally:
            server.shutdown()
            thread.join()
