"""uvicorn as the door needs it."""

from __future__ import annotations

import uvicorn
from starlette.types import ASGIApp

from firesteel.config.sections import RestOptions, SecurityOptions
from firesteel.rest.security.mtls import ssl_context
from firesteel.rest.security.protocol import protocol_with


def server_config(app: ASGIApp, rest: RestOptions, security: SecurityOptions) -> uvicorn.Config:
    """The configuration of the server around `app`, which is a Door.

    Raises:
        InvalidConfigError: the files of TLS cannot be used.
    """
    tls = ssl_context(security) if security.ssl_enabled else None
    return uvicorn.Config(
        app,
        host=rest.bind_address,
        port=rest.port,
        http=protocol_with(rest.request_timeout),
        ws="none",
        ssl_context_factory=(lambda _config, _default: tls) if tls is not None else None,
        proxy_headers=False,  # else a local caller could choose its own address with X-Forwarded-For (S13)
        server_header=False,
        date_header=False,
        access_log=False,  # it would have whole addresses in it, queries and all
        log_config=None,
    )
