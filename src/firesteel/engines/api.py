"""Spark's monitoring API of one engine, on its loopback port, behind the filter that wants a signed token."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

from firesteel.engines.record import EngineRecord


class EngineApi:
    def __init__(self, engine: EngineRecord, *, timeout: float = 5.0) -> None:
        self._root = f"http://127.0.0.1:{engine.ui_port}/api/v1"
        self._token = signed_token(engine.ui_secret)
        self._timeout = timeout
        self._application: str | None = None

    def version(self) -> str:
        """Spark's version: the cheapest question that only a working engine answers."""
        found: str = self._fetch("version")["spark"]
        return found

    def get(self, path: str, **query: str) -> Any:
        """An answer about the engine's application; None when Spark knows nothing of it."""
        if self._application is None:
            self._application = self._fetch("applications")[0]["id"]
        try:
            return self._fetch(f"applications/{self._application}/{path}?{urllib.parse.urlencode(query)}")
        except urllib.error.HTTPError as error:
            with error:
                if error.code == 404:
                    return None
            raise

    def _fetch(self, path: str) -> Any:
        headers = {"Authorization": f"Bearer {self._token}"}
        request = urllib.request.Request(f"{self._root}/{path}", headers=headers)  # noqa: S310 - our own loopback port
        with urllib.request.urlopen(request, timeout=self._timeout) as answer:  # noqa: S310
            return json.load(answer)


def signed_token(secret: str) -> str:
    """A JSON web signature as Spark's JWSFilter wants it: HS256 over an empty claim."""

    def encode(raw: bytes) -> bytes:
        return base64.urlsafe_b64encode(raw).rstrip(b"=")

    body = encode(b'{"alg":"HS256","typ":"JWT"}') + b"." + encode(b"{}")
    signature = hmac.new(base64.urlsafe_b64decode(secret), body, hashlib.sha256).digest()
    return (body + b"." + encode(signature)).decode()
