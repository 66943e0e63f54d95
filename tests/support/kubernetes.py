"""A real kube-apiserver with a real etcd, for tests; and a door in front of it that can be made to fail.

The apiserver authorises by RBAC. There is no controller and no kubelet: objects are all there is.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import signal
import ssl
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import yaml

from firesteel.ports import unused_port

HOW_TO_GET_IT = "apt-get install etcd-server, and scripts/build-kube-apiserver"
PATIENCE = 120.0
_TOKEN = "admin-of-the-tests"
ROOT = Path(__file__).parents[2]


def binaries() -> tuple[str, str] | None:
    """(etcd, kube-apiserver); None when one of them is not here."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "firesteel"
    built = sorted(cache.glob("kube-apiserver-*[0-9]"))
    given = os.environ.get("KUBEBUILDER_ASSETS")  # where others who test like this have them
    apiserver = shutil.which("kube-apiserver", path=given) if given else None
    apiserver = apiserver or (str(built[-1]) if built else shutil.which("kube-apiserver"))
    etcd = (shutil.which("etcd", path=given) if given else None) or shutil.which("etcd")
    return (etcd, apiserver) if etcd and apiserver else None


class KubernetesServer:
    """One apiserver on loopback, and its etcd. Whoever stops it starts it again."""

    def __init__(self, root: Path, etcd: str, apiserver: str) -> None:
        self.token = _TOKEN
        """Of somebody who may do everything."""
        self._root = root
        self._binaries = {"etcd": etcd, "apiserver": apiserver}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._ports = {name: unused_port() for name in ("etcd", "peer", "apiserver")}
        self._prepare()

    @property
    def address(self) -> str:
        return f"https://127.0.0.1:{self._ports['apiserver']}"

    @property
    def authority(self) -> Path:
        return self._root / "certificates" / "apiserver.crt"

    # -- life and death -------------------------------------------------------------------------------------------

    def start(self) -> None:
        self.start_etcd()
        self.start_apiserver()

    def start_etcd(self) -> None:
        url, peer = (f"http://127.0.0.1:{self._ports[name]}" for name in ("etcd", "peer"))
        self._start(
            "etcd",
            f"--data-dir={self._root / 'etcd'}",
            f"--listen-client-urls={url}",
            f"--advertise-client-urls={url}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync" if self._knows_no_fsync() else "--log-level=warn",
        )
        self._until("etcd", lambda: httpx.get(f"{url}/health").json()["health"] == "true")

    def start_apiserver(self) -> None:
        key = self._root / "service-accounts.key"
        self._start(
            "apiserver",
            f"--etcd-servers=http://127.0.0.1:{self._ports['etcd']}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self._ports['apiserver']}",
            f"--cert-dir={self._root / 'certificates'}",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--authorization-mode=RBAC",
            f"--token-auth-file={self._root / 'tokens.csv'}",
            "--service-account-issuer=https://firesteel.test",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--disable-admission-plugins=ServiceAccount",
            "--shutdown-delay-duration=0s",
        )
        self._until("apiserver", lambda: self.request("GET", "/readyz").text == "ok")

    def stop_apiserver(self) -> None:
        """kill -9: connections break, and nothing is told."""
        self._stop("apiserver")

    def restart_apiserver(self) -> None:
        self.stop_apiserver()
        self.start_apiserver()

    def pause_apiserver(self) -> None:
        """Nobody is answered any more, and no connection breaks."""
        self._processes["apiserver"].send_signal(signal.SIGSTOP)

    def resume_apiserver(self) -> None:
        self._processes["apiserver"].send_signal(signal.SIGCONT)

    def close(self) -> None:
        for name in list(self._processes):
            self._stop(name)
        shutil.rmtree(self._root, ignore_errors=True)

    # -- what a person with kubectl does ---------------------------------------------------------------------------

    def request(
        self, method: str, path: str, body: Any = None, *, token: str = _TOKEN, patch: bool = False
    ) -> httpx.Response:
        kind = "application/merge-patch+json" if patch else "application/json"
        headers = {"Authorization": f"Bearer {token}", "Content-Type": kind}
        content = json.dumps(body) if body is not None else None
        context = ssl.create_default_context(cafile=self.authority)
        return httpx.request(
            method,
            self.address + path,
            content=content,
            headers=headers,
            verify=context,
            timeout=PATIENCE,
            trust_env=False,
        )

    def ask(self, method: str, path: str, body: Any = None, **options: Any) -> dict[str, Any]:
        """Like `request`, but an answer that is no success is an error."""
        answer = self.request(method, path, body, **options)
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text}"
        parsed: dict[str, Any] = answer.json()
        return parsed

    def edit(self, path: str, change: Any) -> dict[str, Any]:
        """A merge patch."""
        return self.ask("PATCH", path, change, patch=True)

    def namespace(self) -> str:
        name = f"test-{uuid.uuid4().hex[:12]}"
        self.ask("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        return name

    def apply(self, manifest: str, namespace: str) -> None:
        """Make the objects of a manifest, all of which are ours and new."""
        for one in yaml.safe_load_all(manifest):
            root = "/api/v1" if one["apiVersion"] == "v1" else f"/apis/{one['apiVersion']}"
            plural = one["kind"].lower() + "s"
            one["metadata"]["namespace"] = namespace
            for subject in one.get("subjects", ()):
                subject["namespace"] = namespace
            self.ask("POST", f"{root}/namespaces/{namespace}/{plural}", one)

    def token_of(self, service_account: str, namespace: str) -> str:
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{service_account}/token"
        made = self.ask("POST", path, {"spec": {"expirationSeconds": 3600}})
        token: str = made["status"]["token"]
        return token

    def forget_history(self) -> None:
        """Compact etcd, as the apiserver does every five minutes: what is older cannot be continued from any more."""
        url = f"http://127.0.0.1:{self._ports['etcd']}/v3"
        newest = httpx.post(f"{url}/kv/range", json={"key": _base64(b"\0"), "limit": "1"}).json()["header"]["revision"]
        httpx.post(f"{url}/kv/compaction", json={"revision": newest, "physical": True}).raise_for_status()

    def kubeconfig(self, into: Path, *, token: str = _TOKEN, address: str | None = None) -> Path:
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": "test",
                    "cluster": {"server": address or self.address, "certificate-authority": str(self.authority)},
                }
            ],
            "users": [{"name": "test", "user": {"token": token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "current-context": "test",
        }
        path = into / f"kubeconfig-{uuid.uuid4().hex[:8]}"
        path.write_text(yaml.safe_dump(config))
        return path

    # -- how -------------------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        (self._root / "tokens.csv").write_text(f"{_TOKEN},admin,admin,system:masters\nunknown,nobody,nobody\n")
        subprocess.run(
            ["openssl", "genrsa", "-out", str(self._root / "service-accounts.key"), "2048"],
            check=True,
            capture_output=True,
        )

    def _knows_no_fsync(self) -> bool:
        told = subprocess.run([self._binaries["etcd"], "--help"], capture_output=True, text=True, check=False)
        return "--unsafe-no-fsync" in told.stdout + told.stderr

    def _start(self, name: str, *arguments: str) -> None:
        log = (self._root / f"{name}.log").open("ab")
        with log:
            self._processes[name] = subprocess.Popen(
                [self._binaries[name], *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "GOMAXPROCS": "2"},
            )

    def _stop(self, name: str) -> None:
        process = self._processes.pop(name, None)
        if process is not None:
            process.kill()
            process.wait()

    def _until(self, name: str, ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while True:
            with contextlib.suppress(httpx.HTTPError, OSError, KeyError, ValueError):
                if ready():
                    return
            log = (self._root / f"{name}.log").read_text(errors="replace")
            assert self._processes[name].poll() is None, f"{name} has ended: {log[-3000:]}"
            assert time.monotonic() < deadline, f"{name} does not answer: {log[-3000:]}"
            time.sleep(0.1)


@contextlib.contextmanager
def server() -> Iterator[KubernetesServer]:
    found = binaries()
    assert found is not None
    started = KubernetesServer(Path(tempfile.mkdtemp(prefix="firesteel-kubernetes-")), *found)
    try:
        started.start()
        yield started
    finally:
        started.close()


def _base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()
