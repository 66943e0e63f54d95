"""Who may use the cluster's nodes: ACLs, credentials and TLS, each against a real server."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import select
import socket
import ssl
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from kazoo.exceptions import NoAuthError  # type: ignore[import-untyped]
from kazoo.security import OPEN_ACL_UNSAFE, make_digest_acl  # type: ignore[import-untyped]
from tests.ha.zookeeper_nodes import ZooKeeperCluster
from tests.needs import package
from tests.support.zookeeper import ZooKeeperServer

from firesteel.errors import StoreBrokenError, StoreUnavailableError
from firesteel.ha.protocols import Stored
from firesteel.ha.zookeeper.client import break_connection
from firesteel.ports import unused_ports
from firesteel.testing.ha_contract.harness import eventually, leading, run

pytestmark = pytest.mark.xdist_group("zookeeper")
AUTH = {"client__auth": "firesteel:canary-password", "client__acl": "creator"}


@pytest.fixture
def cluster(zookeeper: ZooKeeperServer, tmp_path: Path) -> ZooKeeperCluster:
    made = ZooKeeperCluster(zookeeper.hosts, tmp_path)
    # Each under a root of its own: nodes that `creator` made must not be in the way of other tests.
    made.path = f"/protected-{made.cluster_id}/{made.cluster_id}"
    return made


def rooted(cluster: ZooKeeperCluster, options: Mapping[str, str]) -> dict[str, str]:
    return {"path__root": cluster.path.rpartition("/")[0], **options}


# -- ACLs -----------------------------------------------------------------------------------------------------------------


def test_creator_keeps_everybody_else_out(cluster: ZooKeeperCluster) -> None:
    async def test(_: object) -> None:
        services = await cluster.open_with(rooted(cluster, AUTH))
        driver, listener, epoch = await leading(services)
        version = await services.store.put("graphs/a", b"secret", epoch=epoch)
        for arguments in ({}, {"auth_data": [("digest", "firesteel:wrong")]}):
            with cluster.client(**arguments) as stranger:
                for path in ("", "/epoch", "/leader", "/state", "/state/graphs", "/state/graphs/a"):
                    with pytest.raises(NoAuthError):
                        stranger.get(f"{cluster.path}{path}")
                    with pytest.raises(NoAuthError):
                        stranger.set(f"{cluster.path}{path}", b"forged")
                for path in ("/election/latch-x-", "/state/graphs/b", "/x"):
                    with pytest.raises(NoAuthError):
                        stranger.create(f"{cluster.path}{path}", b"", ephemeral=True, sequence=True)
                with pytest.raises(NoAuthError):
                    stranger.get_children(f"{cluster.path}/election")
                with pytest.raises(NoAuthError):
                    stranger.delete(f"{cluster.path}/state/graphs/a")
                with pytest.raises(NoAuthError):
                    stranger.set_acls(cluster.path, OPEN_ACL_UNSAFE)
        same = await cluster.open_with(rooted(cluster, AUTH))
        assert await same.store.get("graphs/a") == Stored(b"secret", version)
        assert listener.events == ["grant"]
        assert driver.holds(epoch)

    run(cluster, test)


@pytest.mark.parametrize("auth", [{}, {"client__auth": "firesteel:wrong", "client__acl": "creator"}])
def test_node_without_the_credentials_is_told_so(cluster: ZooKeeperCluster, auth: dict[str, str]) -> None:
    async def test(_: object) -> None:
        await cluster.open_with(rooted(cluster, AUTH))
        with pytest.raises(StoreBrokenError, match=r"denies access to .*client\.auth") as caught:
            await cluster.open_with(rooted(cluster, auth))
        assert "canary" not in str(caught.value)

    run(cluster, test)


def test_open_nodes_are_not_taken_for_protected_ones(cluster: ZooKeeperCluster) -> None:
    """Somebody may have made them before us, to read and write along."""

    async def test(_: object) -> None:
        await cluster.open_with(rooted(cluster, {}))
        with pytest.raises(StoreBrokenError, match="open to everyone"):
            await cluster.open_with(rooted(cluster, AUTH))

    run(cluster, test)


def test_credentials_survive_a_connection_that_breaks(cluster: ZooKeeperCluster) -> None:
    async def test(_: object) -> None:
        services = await cluster.open_with(rooted(cluster, AUTH))
        _, listener, epoch = await leading(services)
        for n in range(5):
            before = cluster.network(services).accepted
            cluster.network(services).drop()

            async def connected_again(before: int = before) -> bool:
                return bool(cluster.network(services).accepted > before)

            await eventually(connected_again)
            assert await services.store.get("none") is None
            await services.store.put("a", str(n).encode(), epoch=epoch)
        assert listener.events == ["grant"]

    run(cluster, test)


def test_election_that_loses_its_rights_says_so(cluster: ZooKeeperCluster) -> None:
    async def test(_: object) -> None:
        services = await cluster.open_with(rooted(cluster, AUTH))
        _, listener, _ = await leading(services)
        with cluster.client(auth_data=[("digest", "firesteel:canary-password")]) as operator:
            somebody = [make_digest_acl("somebody", "else", all=True)]
            [latch] = operator.get_children(f"{cluster.path}/election")
            operator.set_acls(f"{cluster.path}/election", somebody)
            operator.set_acls(f"{cluster.path}/election/{latch}", somebody)
            operator.set_acls(f"{cluster.path}/epoch", somebody)
        cluster.network(services).drop()
        await listener.until(lambda: bool(listener.errors))
        assert isinstance(listener.errors[0], StoreBrokenError)
        assert listener.events == ["grant", "revoke", "error"]

    run(cluster, test)


# -- TLS ------------------------------------------------------------------------------------------------------------------


class Authority:
    """Signs certificates, for tests only."""

    def __init__(self, directory: Path, name: str) -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.certificate = directory / f"{name}.pem"
        made = self._build(self._name, self._key, authority=True)
        self.certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))

    def issue(self, name: str, address: str = "127.0.0.1") -> tuple[Path, Path]:
        """(certificate, key)."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        made = self._build(subject, key, address=address)
        certificate, private = self._directory / f"{name}.crt", self._directory / f"{name}.key"
        certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
        private.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return certificate, private

    def _build(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        *,
        authority: bool = False,
        address: str | None = None,
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        )
        if address is not None:
            names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))])
            builder = builder.add_extension(names, critical=False)
        return builder.sign(self._key, hashes.SHA256())


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"), "authority")


@pytest.fixture(scope="module")
def tls_server(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The hosts of a server that asks its clients for certificates."""
    directory = tmp_path_factory.mktemp("tls-server")
    certificate, key = authority.issue("server")
    store = directory / "server.pem"
    store.write_bytes(key.read_bytes() + certificate.read_bytes())
    [port] = unused_ports(1)
    properties = {
        "secureClientPort": str(port),
        "secureClientPortAddress": "127.0.0.1",
        "ssl.keyStore.location": str(store),
        "ssl.keyStore.type": "PEM",
        "ssl.trustStore.location": str(authority.certificate),
        "ssl.trustStore.type": "PEM",
        "ssl.clientAuth": "need",
    }
    netty = ["-Dzookeeper.serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory"]
    with ZooKeeperServer(directory, properties=properties, jvm_options=netty):
        yield f"127.0.0.1:{port}"


def tls(authority: Authority, certificate: Path, key: Path) -> dict[str, str]:
    return {
        "ssl__enabled": "true",
        "ssl__ca": str(authority.certificate),
        "ssl__certificate": str(certificate),
        "ssl__key": str(key),
        "client__connection_timeout": "10 s",
    }


@pytest.mark.slow
def test_tls_with_certificates_on_both_sides(tls_server: str, authority: Authority, tmp_path: Path) -> None:
    cluster = ZooKeeperCluster(tls_server, tmp_path)

    async def test(_: object) -> None:
        services = await cluster.open_with(tls(authority, *authority.issue("node")))
        driver, _, epoch = await leading(services)
        version = await services.store.put("a", bytes(300_000), epoch=epoch)
        stored = await services.store.get("a")
        assert stored is not None
        assert (len(stored.value), stored.version) == (300_000, version)
        values = {f"graphs/{n}": bytes(50_000) for n in range(100)}
        await asyncio.gather(*(services.store.put(path, value, epoch=epoch) for path, value in values.items()))
        assert {path: s.value for path, s in (await services.store.list("graphs")).items()} == values
        cluster.network(services).drop()
        assert await services.store.get("b") is None
        assert driver.holds(epoch)
        # A connection that we break ourselves, with answers on their way: none of them is taken for something else.
        for n in range(20):
            reading = asyncio.create_task(services.store.list("graphs"))
            await asyncio.sleep(n / 1000)
            break_connection(services.session._client)
            assert {path: s.value for path, s in (await reading).items()} == values

    run(cluster, test)


def test_tls_connection_that_is_broken_gives_nothing_that_is_encrypted(authority: Authority) -> None:
    """Whoever reads from it at that moment would take it for an answer."""
    certificate, key = authority.issue("server")
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(certificate, key)
    asking = ssl.create_default_context(cafile=authority.certificate)
    asking.check_hostname = False
    here, there = socket.socketpair()
    said = b"an answer " * 100
    with ThreadPoolExecutor(1) as threads:
        accepting = threads.submit(serving.wrap_socket, there, server_side=True)
        with asking.wrap_socket(here) as connection, accepting.result() as server:
            connection.settimeout(20)
            server.sendall(said)
            select.select([connection], [], [], 20)
            break_connection(SimpleNamespace(_connection=SimpleNamespace(_socket=connection)))
            heard = connection.recv(10_000)
            assert said.startswith(heard)


@pytest.mark.slow
def test_tls_server_that_is_not_who_it_should_be_is_not_talked_to(
    tls_server: str, authority: Authority, tmp_path: Path
) -> None:
    cluster = ZooKeeperCluster(tls_server, tmp_path)
    options = tls(authority, *authority.issue("node")) | {"client__connection_timeout": "1 s"}
    other = Authority(tmp_path, "other")

    async def test(_: object) -> None:
        with pytest.raises(StoreUnavailableError):
            await cluster.open_with(options | {"ssl__ca": str(other.certificate)})
        certificate, key = other.issue("stranger")
        with pytest.raises(StoreUnavailableError):  # the server's refusal of us
            await cluster.open_with(options | {"ssl__certificate": str(certificate), "ssl__key": str(key)})
        with pytest.raises(StoreUnavailableError):
            await cluster.open(client__connection_timeout="1 s")
        trusting = await cluster.open_with(
            tls(authority, *authority.issue("node")) | {"ssl__ca": str(other.certificate), "ssl__verify": "false"}
        )
        assert await trusting.store.get("a") is None

    run(cluster, test)


def test_tls_certificate_of_another_host_is_refused(authority: Authority, tmp_path: Path) -> None:
    certificate, key = authority.issue("elsewhere", address="10.1.2.3")
    store = tmp_path / "server.pem"
    store.write_bytes(key.read_bytes() + certificate.read_bytes())
    [port] = unused_ports(1)
    properties = {
        "secureClientPort": str(port),
        "secureClientPortAddress": "127.0.0.1",
        "ssl.keyStore.location": str(store),
        "ssl.keyStore.type": "PEM",
        "ssl.clientAuth": "none",
    }
    netty = ["-Dzookeeper.serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory"]
    cluster = ZooKeeperCluster(f"127.0.0.1:{port}", tmp_path)
    options = {"ssl__enabled": "true", "ssl__ca": str(authority.certificate), "client__connection_timeout": "1 s"}

    async def test(_: object) -> None:
        with pytest.raises(StoreUnavailableError):
            await cluster.open_with(options)
        await cluster.open_with(options | {"ssl__verify": "false", "client__connection_timeout": "10 s"})

    with ZooKeeperServer(tmp_path / "server", properties=properties, jvm_options=netty):
        run(cluster, test)


# -- SASL -----------------------------------------------------------------------------------------------------------------

_JAAS = """\
Server {{
    org.apache.zookeeper.server.auth.DigestLoginModule required
    user_firesteel="{password}";
}};
"""


def test_sasl_digest(tmp_path: Path) -> None:
    package("puresasl", "zookeeper")
    (tmp_path / "jaas.conf").write_text(_JAAS.format(password="canary"))
    options = [
        f"-Djava.security.auth.login.config={tmp_path / 'jaas.conf'}",
        "-Dzookeeper.authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
    ]
    sasl = {"sasl__mechanism": "DIGEST-MD5", "sasl__username": "firesteel", "client__acl": "creator"}

    async def test(cluster: ZooKeeperCluster) -> None:
        services = await cluster.open_with(sasl | {"sasl__password": "canary"})
        driver, listener, epoch = await leading(services)
        version = await services.store.put("a", b"secret", epoch=epoch)
        with cluster.client() as stranger, pytest.raises(NoAuthError):
            stranger.get(f"{cluster.path}/state/+/a")
        with pytest.raises(StoreBrokenError, match="refused our credentials"):
            await cluster.open_with(sasl | {"sasl__password": "wrong"})
        cluster.network(services).drop()
        assert await services.store.get("a") == Stored(b"secret", version)
        assert driver.holds(epoch)
        assert listener.events == ["grant"]

    with ZooKeeperServer(tmp_path / "server", jvm_options=options) as server:
        on_server = ZooKeeperCluster(server.hosts, tmp_path)
        run(on_server, lambda _: test(on_server))
