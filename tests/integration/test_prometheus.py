"""A real Prometheus scrapes real nodes, believes every line, and can answer all that alerts and dashboard ask of it."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from tests.entrypoint.node_cluster import GRAPH, NodeCluster
from tests.needs import missing
from tests.support.waiting import until

from firesteel.config.sections import Role
from firesteel.rest.security.tokens import TokenFile

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("handover")]
DEPLOY = Path(__file__).resolve().parents[2] / "deploy" / "metrics"
HOW_TO_GET_IT = "apt-get install --no-install-recommends prometheus"


def program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        missing(name, HOW_TO_GET_IT)
    return found


def promtool(*arguments: str, text: str | None = None) -> str:
    """What it prints; it must find nothing wrong."""
    done = subprocess.run(
        [program("promtool"), *arguments], input=text, capture_output=True, text=True, cwd=DEPLOY, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


class Prometheus:
    """The configuration of deploy/metrics, but for targets, token and how often it looks."""

    def __init__(self, directory: Path, targets: list[str], token: str) -> None:
        directory.mkdir()
        settings = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())
        settings["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        settings["rule_files"] = [str(DEPLOY / "firesteel-alerts.yml")]
        (directory / "token").write_text(token)
        (scraped,) = settings["scrape_configs"]
        scraped["authorization"]["credentials_file"] = str(directory / "token")
        scraped["static_configs"] = [{"targets": targets}]
        file = directory / "prometheus.yml"
        file.write_text(yaml.safe_dump(settings))
        promtool("check", "config", str(file))
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}/api/v1"
        self.log = directory / "log"
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                [
                    program("prometheus"),
                    f"--config.file={file}",
                    f"--storage.tsdb.path={directory / 'data'}",
                    f"--web.listen-address=127.0.0.1:{port}",
                ],
                stdout=output,
                stderr=output,
            )

    def ask(self, path: str, **query: str) -> Any:
        answer = httpx.get(f"{self.url}/{path}", params=query, timeout=30, trust_env=False).json()
        assert answer["status"] == "success", answer
        return answer["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.ask("query", query=expression)["result"]
        return found

    def healthy(self) -> list[str]:
        """Of the targets, those whose last scrape went well."""
        with contextlib.suppress(httpx.TransportError):
            return [t["scrapeUrl"] for t in self.ask("targets")["activeTargets"] if t["health"] == "up"]
        return []

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[NodeCluster]:
    program("prometheus")
    started = NodeCluster(tmp_path, {})
    try:
        for _ in range(2):
            started.start()
        started.leader()
        yield started
    finally:
        started.close()


def expressions_of_the_dashboard() -> list[str]:
    dashboard = json.loads((DEPLOY / "grafana-dashboard.json").read_text())
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    put_in = {"$__rate_interval": "1m", "$cluster": ".*", "$stream": ".*"}
    return [re.sub(r"\$\w+", lambda found: put_in[found[0]], expression) for expression in asked]


def test_rules_are_right_and_fire_when_they_should() -> None:
    assert "SUCCESS" in promtool("check", "rules", "firesteel-alerts.yml")
    promtool("test", "rules", "firesteel-alerts-test.yml")


def test_prometheus_reads_every_node_and_answers_the_dashboard(cluster: NodeCluster, tmp_path: Path) -> None:
    token = TokenFile(cluster.configuration().security.tokens_file).create("prometheus", Role.SCRAPER, "prometheus")
    with cluster.client() as client:
        for _ in range(3):
            client.submit({**GRAPH, "name": 'nasty "name"\\'})
    prometheus = Prometheus(tmp_path / "prometheus", [n.address.removeprefix("http://") for n in cluster.nodes], token)
    try:
        until(lambda: len(prometheus.healthy()) == 2, lambda: prometheus.log.read_text()[-3000:])
        until(
            lambda: [r["value"][1] for r in prometheus.query("sum(firesteel_dispatcher_unfinished_jobs)")] == ["3"],
            lambda: str(prometheus.query("firesteel_dispatcher_unfinished_jobs")),
        )
        assert [r["value"][1] for r in prometheus.query("sum(firesteel_election_leading)")] == ["1"]
        states = prometheus.query("firesteel_job_state")
        assert {r["metric"]["job_name"] for r in states} == {'nasty "name"\\'}
        for expression in expressions_of_the_dashboard():
            prometheus.query(expression)  # no error; whether there is something depends on what runs
        rules = [rule for group in prometheus.ask("rules")["groups"] for rule in group["rules"]]
        assert len(rules) > 10
        until(
            lambda: all(
                rule["health"] == "ok" for group in prometheus.ask("rules")["groups"] for rule in group["rules"]
            ),
            lambda: str(prometheus.ask("rules")),
        )
    finally:
        prometheus.close()


def test_the_linter_has_nothing_to_say_of_what_a_node_tells(cluster: NodeCluster) -> None:
    token = TokenFile(cluster.configuration().security.tokens_file).create("prometheus", Role.SCRAPER, "prometheus")
    with cluster.client() as client:
        client.submit(GRAPH)
    headers = {"authorization": f"Bearer {token}"}
    text = httpx.get(cluster.leader().address + "/metrics", headers=headers, timeout=30, trust_env=False).text
    promtool("check", "metrics", text=text)
