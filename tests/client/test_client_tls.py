"""HTTPS: who is trusted, and that distrust is told at once."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from tests.client.fake_cluster import FakeCluster, Node
from tests.client.twins import Twin

from firesteel.client import ClusterError, ClusterUnreachableError


def certificate(directory: Path, name: str) -> Path:
    """A PEM file with a key and a certificate of it that it signed itself, for 127.0.0.1."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file = directory / f"{name}.pem"
    file.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
    return file


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    return {name: certificate(tmp_path, name) for name in ("node", "client")}


@pytest.fixture
def secure(fake: FakeCluster, files: dict[str, Path]) -> Iterator[Node]:
    fake.answers["/queue"] = {"waiting": 5, "jobs": []}
    node = Node(fake, certificate=files["node"])
    yield node
    node.stop()


@pytest.fixture
def mutual(fake: FakeCluster, files: dict[str, Path]) -> Iterator[Node]:
    """A node that wants to see the certificate of a client."""
    fake.answers["/queue"] = {"waiting": 5, "jobs": []}
    node = Node(fake, certificate=files["node"], clients=files["client"])
    yield node
    node.stop()


def test_authority_that_is_named_is_trusted(twin: Twin, secure: Node, files: dict[str, Path]) -> None:
    assert secure.address.startswith("https://")
    assert twin(twin.client(secure.address, ca=files["node"]).queue()).waiting == 5


def test_node_that_is_not_trusted_gets_nothing_and_is_not_asked_twice(
    twin: Twin, fake: FakeCluster, secure: Node
) -> None:
    with pytest.raises(ClusterError, match=r"client\.ssl\.ca") as refused:
        twin(twin.client(secure.address, timeout=3600).queue())
    assert not isinstance(refused.value, ClusterUnreachableError)
    assert not fake.seen


def test_own_certificate_is_shown(twin: Twin, mutual: Node, files: dict[str, Path]) -> None:
    client = twin.client(mutual.address, ca=files["node"], certificate=files["client"])
    assert twin(client.queue()).waiting == 5


def test_client_without_the_certificate_is_not_let_in(
    twin: Twin, fake: FakeCluster, mutual: Node, files: dict[str, Path]
) -> None:
    with pytest.raises(ClusterUnreachableError):
        twin(twin.client(mutual.address, ca=files["node"], timeout=0.5).queue())
    assert not fake.seen


def test_plain_addresses_trust_no_certificate_at_all() -> None:
    from firesteel.client.transport import settings_of

    context = settings_of(("http://127.0.0.1:1",), ca=None, certificate=None)["verify"]
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert not context.get_ca_certs()
