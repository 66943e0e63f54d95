"""Opening the backend `kubernetes`: what is wrong is told before anything is asked of a server."""

from __future__ import annotations

import asyncio
import importlib
import ssl
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.rest_security.certificates import Authority

from firesteel.config import load_configuration
from firesteel.config.loader import Configuration
from firesteel.errors import InvalidConfigError, StoreBrokenError, StoreUnavailableError
from firesteel.ha.kubernetes import connection
from firesteel.ha.kubernetes.services import open_kubernetes
from firesteel.ha.services import open_high_availability


def configured(tmp_path: Path, **options: str) -> Configuration:
    overrides = {
        "high-availability.type": "kubernetes",
        "high-availability.storageDir": str(tmp_path / "large"),
        "kubernetes.config.file": str(tmp_path / "kubeconfig"),
        **{key.replace("__", "."): value for key, value in options.items()},
    }
    return load_configuration(overrides=overrides, environ={"HOME": str(tmp_path)}, cwd=tmp_path)


def kubeconfig(tmp_path: Path, server: str, **cluster: Any) -> None:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "one", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "one",
    }
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))


def problem(configuration: Configuration) -> str:
    with pytest.raises(InvalidConfigError) as raised:
        asyncio.run(open_high_availability(configuration))
    return str(raised.value)


@pytest.mark.parametrize("content", [None, "", "{", "[]", "clusters: []\n"])
def test_kubeconfig_that_leads_nowhere(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "kubeconfig").write_text(content)
    said = problem(configured(tmp_path))
    assert "kubernetes.config.file" in said
    assert str(tmp_path / "kubeconfig") in said


def test_context_that_is_not_in_the_kubeconfig(tmp_path: Path) -> None:
    kubeconfig(tmp_path, "https://127.0.0.1:1")
    assert "other" in problem(configured(tmp_path, kubernetes__context="other"))


def test_library_that_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kubernetes_asyncio", None)
    kubeconfig(tmp_path, "https://127.0.0.1:1")
    assert 'pip install "firesteel[kubernetes]"' in problem(configured(tmp_path))


@pytest.mark.parametrize("name", ["My Cluster", "UPPER", "-a", "a-", "a.b", "a" * 64, "ä"])
def test_names_that_kubernetes_does_not_know(tmp_path: Path, name: str) -> None:
    for option in ("high-availability.cluster-id", "kubernetes.namespace"):
        said = problem(configured(tmp_path, **{option.replace(".", "__"): name}))
        assert option in said
        assert "a-z" in said


def test_server_that_is_not_there(tmp_path: Path) -> None:
    kubeconfig(tmp_path, "http://127.0.0.1:1")
    with pytest.raises(StoreUnavailableError, match=r"http://127\.0\.0\.1:1 cannot be reached"):
        asyncio.run(open_kubernetes(configured(tmp_path)))


def test_pod_has_a_way_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a pod, without a kubeconfig, the service account is used; a context that is asked for is one of a kubeconfig."""
    incluster = importlib.import_module("kubernetes_asyncio.config.incluster_config")
    (tmp_path / "token").write_text("t")
    certificate = importlib.import_module("certifi").where()
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "2")
    monkeypatch.setattr(incluster, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster, "SERVICE_CERT_FILENAME", certificate)

    async def address(**options: str) -> str:
        found = await connection.connect(configured(tmp_path, **options).kubernetes)
        try:
            return str(found.client.configuration.host)
        finally:
            await found.client.close()

    kubeconfig(tmp_path, "http://127.0.0.1:1")
    assert asyncio.run(address(kubernetes__config__file="")) == "https://127.0.0.1:2"
    assert asyncio.run(address()) == "http://127.0.0.1:1"
    (tmp_path / "token").unlink()
    with pytest.raises(InvalidConfigError, match="token"):
        asyncio.run(address(kubernetes__config__file=""))


def test_storage_directory_is_needed(tmp_path: Path) -> None:
    kubeconfig(tmp_path, "http://127.0.0.1:1")
    assert "high-availability.storageDir" in problem(configured(tmp_path, **{"high-availability__storageDir": ""}))


def test_certificate_that_nobody_vouches_for(tmp_path: Path) -> None:
    pair = Authority(tmp_path / "authority").issue("127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)

    async def main() -> None:
        server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=context)
        port = server.sockets[0].getsockname()[1]
        kubeconfig(tmp_path, f"https://127.0.0.1:{port}")
        async with server:
            with pytest.raises(StoreBrokenError, match="certificate that is not trusted"):
                await open_kubernetes(configured(tmp_path))

    asyncio.run(main())
