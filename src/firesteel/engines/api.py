"""Client of an engine's Spark monitoring API, on its loopback port, behind a filter that requires a signed token."""

from __future__ import annotations

import base64
import http.client
import json
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Collection
from typing import Any

from firesteel.engines.record import EngineRecord


class EngineApi:
    def __init__(self, engine: EngineRecord, *, timeout: float = 5.0) -> None:
        self._port = engine.ui_port
        self._root = f"http://127.0.0.1:{engine.ui_port}/api/v1"
        self._token = signed_token(engine.ui_secret)
        self._timeout = timeout
        self._application: str | None = None

    def version(self) -> str:
        """Spark's version: the cheapest request that only a working engine answers."""
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

    def kill_jobs(self, numbers: Collection[int]) -> None:
        """Cancel Spark jobs, regardless of who started them. Jobs that have already ended are ignored."""
        # The form that a person would use, with the mark against forged requests that is in the page.
        form = self._page("GET", "/jobs/")
        mark = re.search(r'name="csrfToken" value="(\w+)"', form)
        if mark is None:
            return  # nothing runs that could be killed
        for number in numbers:
            self._page("POST", f"/jobs/job/kill/?{urllib.parse.urlencode({'id': number, 'csrfToken': mark[1]})}")

    def _page(self, method: str, path: str) -> str:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=self._timeout)
        try:
            connection.request(method, path, headers={"Authorization": f"Bearer {self._token}"})
            answer = connection.getresponse()
            text = answer.read().decode("utf-8", "replace")
        finally:
            connection.close()
        if answer.status >= 400:
            raise OSError(f"the engine refused {method} {path.partition('?')[0]} (HTTP {answer.status})")
        return text

    def _fetch(self, path: str) -> Any:
        headers = {"Authorization": f"Bearer {self._token}"}
        request = urllib.request.Request(f"{self._root}/{path}", headers=headers)  # noqa: S310 - our own loopback port
        with urllib.request.urlopen(request, timeout=self._timeout) as answer:  # noqa: S310
            return json.load(answer)


def signed_token(secret: str) -> str:
    """A JSON web signature as Spark's JWSFilter wants it: HS256 over an empty claim."""
    import jwt  # takes long to import, and a driver needs it only once its job runs

    return jwt.encode({}, base64.urlsafe_b64decode(secret), "HS256")
