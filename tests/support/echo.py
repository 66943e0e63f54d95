"""A server that sends back what it gets."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator


def _send_back(connection: socket.socket) -> None:
    with connection, contextlib.suppress(OSError):
        while data := connection.recv(65536):
            connection.sendall(data)


@contextlib.contextmanager
def echo_server() -> Iterator[tuple[str, int]]:
    """Its address. The one who accepts has ended before the socket is closed: its number may be another's a moment later."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    threading.Thread(target=_send_back, args=(connection,), daemon=True).start()

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield listener.getsockname()
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
