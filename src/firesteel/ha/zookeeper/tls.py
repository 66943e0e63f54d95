"""TLS to the servers, with Python's defaults: TLS 1.2 or later, and certificates are verified."""

from __future__ import annotations

import socket
import ssl

from firesteel.config.high_availability import ZooKeeperOptions


def tls_context(options: ZooKeeperOptions) -> ssl.SSLContext | None:
    """None when TLS is not enabled. Raises OSError (such as SSLError) when a file cannot be used."""
    if not options.ssl_enabled:
        return None
    context = ssl.create_default_context(cafile=options.ssl_ca)
    if not options.ssl_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if options.ssl_certificate is not None:
        # An empty password rather than none: OpenSSL would prompt for one at the terminal.
        password = options.ssl_key_password or ""
        context.load_cert_chain(options.ssl_certificate, options.ssl_key, password)
    return context


def connect(context: ssl.SSLContext, address: tuple[str, int], host: str, timeout: float) -> ssl.SSLSocket:
    """A connection after its handshake. kazoo's own method would leave it open on failure."""
    plain = socket.create_connection(address, timeout)
    try:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return context.wrap_socket(plain, server_hostname=host)
    except BaseException:
        plain.close()
        raise
