"""The certificate of a cluster on hosts of our own: one for all nodes, which vouches for itself."""

from __future__ import annotations

import datetime as dt
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_DAY = dt.timedelta(days=1)


@dataclass(frozen=True, slots=True)
class ClusterCertificate:
    """PEM files. The certificate is its own authority: whoever trusts the file trusts the nodes that have the key."""

    certificate: Path
    key: Path

    def options(self) -> dict[str, str]:
        """Of a node that serves with it, and trusts the others."""
        return {
            "security.ssl.rest.enabled": "true",
            "security.ssl.rest.certificate": str(self.certificate),
            "security.ssl.rest.key": str(self.key),
            "security.ssl.rest.ca": str(self.certificate),
        }


def make_certificate(directory: Path, addresses: Sequence[str]) -> ClusterCertificate:
    """Good for servers at these addresses, from yesterday to tomorrow."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "hosts of firesteel-chaos")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _DAY)
        .not_valid_after(now + _DAY)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(a)) for a in addresses]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    files = ClusterCertificate(directory / "cluster.pem", directory / "cluster.key")
    files.certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    files.key.touch(mode=0o600)
    files.key.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return files
