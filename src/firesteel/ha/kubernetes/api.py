"""The few requests that are sent to the API server, and the meaning of its answers.

Objects are passed as JSON. The client library would build models for each of them, and a shard has hundreds of values.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import orjson

from firesteel.errors import (
    InvalidConfigError,
    Problem,
    StoreBrokenError,
    StoreError,
    StoreFailingError,
    StoreUnavailableError,
)

TIMEOUT = 10.0
"""Timeout of a request that is not a watch."""
PAGE = 16
"""The number of objects in one page of a list; each may have a mebibyte."""
WATCH_SECONDS = 300

_VERBS = {"GET": "get", "POST": "create", "PUT": "update"}
_BUSY = {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS}
_TRIES = 5
_LACKS_ROLE = re.compile(r"\bcannot \w+ resource\b")
"""The server's message when no role allows a request. It also forbids for quotas and in terminating namespaces."""


class ConflictError(Exception):
    """The object already exists, was changed since it was read, or is another one of the same name."""


class GoneError(Exception):
    """The version to continue from is too old."""


@dataclass(frozen=True, slots=True)
class ObjectKind:
    """A kind of object, by its API path."""

    name: str
    root: str
    plural: str


LEASE = ObjectKind("Lease", "/apis/coordination.k8s.io/v1", "leases")
CONFIG_MAP = ObjectKind("ConfigMap", "/api/v1", "configmaps")


class Api:
    """Requests in one namespace.

    Every method may raise StoreUnavailableError (out of reach, overloaded, failing), after which a write may or may not have
    happened; StoreBrokenError (this node is not allowed to do it); and InvalidConfigError (no such namespace).
    """

    def __init__(self, client: Any, namespace: str) -> None:
        self._client = client
        self._namespace = namespace
        self._sending: set[asyncio.Task[Any]] = set()
        self.where = f"the API server {client.configuration.host}"

    async def read(self, kind: ObjectKind, name: str) -> dict[str, Any] | None:
        """The object, no older than this call; None when there is none."""
        return await self._request("GET", kind, name)

    async def create(self, kind: ObjectKind, made: Mapping[str, Any]) -> dict[str, Any]:
        """Raises ConflictError when the name is taken."""
        created = await self._request("POST", kind, body=made)
        if created is None:
            raise StoreError(f"{self.where} does not know {kind.plural}; check its version")
        return created

    async def replace(self, kind: ObjectKind, made: Mapping[str, Any]) -> dict[str, Any] | None:
        """The object after the update; None when it is gone.

        Raises ConflictError when it is not the one, or not of the resourceVersion, that `made` names. Nothing was written then.
        """
        metadata = made["metadata"]
        assert metadata["resourceVersion"]
        assert metadata["uid"]
        return await self._request("PUT", kind, metadata["name"], body=made)

    async def list_all(self, kind: ObjectKind, selector: str) -> list[dict[str, Any]]:
        """A consistent list of all objects, read in pages."""
        for _ in range(_TRIES):
            try:
                return [found async for page in self._pages(kind, selector) for found in page]
            except GoneError:
                continue  # the snapshot expired while its first pages were read
        raise StoreUnavailableError(
            f"{self.where} expires lists of {kind.plural} faster than they can be read; try again"
        )

    async def _pages(self, kind: ObjectKind, selector: str) -> AsyncIterator[list[dict[str, Any]]]:
        query = {"labelSelector": selector, "limit": str(PAGE)}
        while True:
            listed = await self._request("GET", kind, query=query)
            if listed is None:
                raise StoreError(f"{self.where} does not know {kind.plural}; check its version")
            yield listed.get("items") or []
            following = (listed.get("metadata") or {}).get("continue")
            if not following:
                return
            query["continue"] = following

    async def watch(
        self, kind: ObjectKind, name: str, since: str | None
    ) -> AsyncGenerator[tuple[str, dict[str, Any]], None]:
        """(type, object) of each change to one object, until the server ends it; without `since`, first its current state.

        Raises GoneError when the changes after `since` are no longer available.
        """
        query = {
            "watch": "true",
            "fieldSelector": f"metadata.name={name}",
            "timeoutSeconds": str(WATCH_SECONDS),
            # No bookmarks: with them, and without a version to start from, newer servers require an etcd that not all have.
            "resourceVersion": since or "",
        }
        try:
            response = await self._send("GET", kind, None, query, None, WATCH_SECONDS + TIMEOUT)
            try:
                if response.status != HTTPStatus.OK:
                    raise self._error(response.status, await response.read(), "watch", kind)
                while line := await response.content.readline():
                    event = orjson.loads(line)
                    if event["type"] == "ERROR":
                        status = event["object"].get("code") or HTTPStatus.INTERNAL_SERVER_ERROR
                        raise self._error(status, orjson.dumps(event["object"]), "watch", kind)
                    yield event["type"], event["object"]
            finally:
                _abort(response)
        except _no_answer() as error:
            raise self._unreachable(error) from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StoreUnavailableError(f"{self.where} sent a malformed change: {error!r:.200}") from error

    async def close(self) -> None:
        await self._client.close()
        if self._sending:
            await asyncio.wait(self._sending)

    async def _request(
        self,
        method: str,
        kind: ObjectKind,
        name: str | None = None,
        *,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> dict[str, Any] | None:
        """The object in the answer; None for 404."""
        verb = "list" if method == "GET" and name is None else _VERBS[method]
        try:
            response = await self._send(method, kind, name, query or {}, body, TIMEOUT)
            try:
                raw = await response.read()
            except BaseException:
                _abort(response)
                raise
            response.release()
        except _no_answer() as error:
            raise self._unreachable(error) from error
        if response.status in {HTTPStatus.OK, HTTPStatus.CREATED}:
            return await self._parse(raw)
        if response.status == HTTPStatus.NOT_FOUND and _status(raw).kind != "namespaces":
            return None
        raise self._error(response.status, raw, verb, kind)

    async def _parse(self, raw: bytes) -> dict[str, Any]:
        try:
            parsed = await asyncio.to_thread(orjson.loads, raw) if len(raw) > 2**18 else orjson.loads(raw)
        except ValueError:
            parsed = None
        if not isinstance(parsed, dict):
            raise StoreUnavailableError(f"{self.where} sent an answer that is not an object: {raw[:200]!r}")
        return parsed

    async def _send(
        self,
        method: str,
        kind: ObjectKind,
        name: str | None,
        query: Mapping[str, str],
        body: Mapping[str, Any] | None,
        seconds: float,
    ) -> Any:
        path = f"{kind.root}/namespaces/{self._namespace}/{kind.plural}"
        call = self._client.call_api(
            path if name is None else f"{path}/{name}",
            method,
            query_params=list(query.items()),
            header_params={"Accept": "application/json", "Content-Type": "application/json"},
            body=body,
            auth_settings=["BearerToken"],
            _preload_content=False,
            _request_timeout=seconds,
        )
        # In a task of its own, which `close` waits for: a connection that is aborted while it waits for an answer closes in
        # the background, and nothing else would wait for that.
        sending = asyncio.get_running_loop().create_task(call, name=f"kubernetes:{method}")
        self._sending.add(sending)
        sending.add_done_callback(self._sending.discard)
        try:
            return await asyncio.shield(sending)
        except asyncio.CancelledError:
            sending.add_done_callback(_drop)
            raise

    def _error(self, code: int, raw: bytes, verb: str, kind: ObjectKind) -> Exception:
        status = _status(raw)
        said = f"{self.where} answered {code} to '{verb}' of {kind.plural} in namespace '{self._namespace}'"
        why = f" ({status.message[:500]})" if status.message else ""
        match code:
            case HTTPStatus.NOT_FOUND:
                message = f"{self.where} has no namespace '{self._namespace}'"
                fix = "create it with kubectl create namespace, or name another"
                return InvalidConfigError([Problem(message, fix, field="kubernetes.namespace")])
            case HTTPStatus.CONFLICT:
                return ConflictError(status.message)
            case HTTPStatus.GONE:
                return GoneError(status.message)
            case HTTPStatus.UNAUTHORIZED:
                return StoreBrokenError(
                    f"{said}: it does not recognise this node{why}; give the pod a service account, or the kubeconfig "
                    "a valid credential"
                )
            case HTTPStatus.FORBIDDEN if _LACKS_ROLE.search(status.message):
                return StoreBrokenError(
                    f"{said}: access denied{why}; give this node's user or service account a Role with the verb '{verb}' on "
                    f"{kind.plural}, as in deploy/kubernetes/rbac.yaml"
                )
            case HTTPStatus.FORBIDDEN if "quota" in status.message:
                return StoreFailingError(f"{said}: a quota is used up{why}; raise it")
            case HTTPStatus.FORBIDDEN:
                return StoreBrokenError(f"{said}{why}; ask the administrator of the Kubernetes cluster")
            case HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
                return StoreError(f"{said}: the object is too large{why}; store a smaller value")
        if code in _BUSY or code >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return StoreUnavailableError(f"{said}{why}; it may work later")
        return StoreError(f"{said}{why}; check its logs")

    def _unreachable(self, error: BaseException) -> StoreError:
        import aiohttp

        if isinstance(error, aiohttp.ClientConnectorCertificateError):
            return StoreBrokenError(
                f"{self.where} has a certificate that is not trusted ({error}); put its authority into the kubeconfig"
            )
        return StoreUnavailableError(f"{self.where} cannot be reached; it may work later ({error!r:.300})")


@dataclass(frozen=True, slots=True)
class _Status:
    message: str
    kind: str
    """The plural of the kind that an error is about, if the server names it."""


def _status(raw: bytes) -> _Status:
    """The Status object in an answer, if it has one; a proxy in between may send anything."""
    try:
        found = json.loads(raw)
        details = found.get("details") or {}
        return _Status(str(found.get("message") or ""), str(details.get("kind") or ""))
    except (ValueError, AttributeError):
        return _Status(raw[:200].decode(errors="replace"), "")


def _abort(response: Any) -> None:
    """Abort a connection on which the server would keep sending, without waiting for its end."""
    if response.connection is not None and response.connection.transport is not None:
        response.connection.transport.abort()
    response.close()


def _drop(sending: asyncio.Task[Any]) -> None:
    """Discard an answer that is no longer needed."""
    if not sending.cancelled() and sending.exception() is None:
        _abort(sending.result())


def _no_answer() -> tuple[type[BaseException], ...]:
    import aiohttp

    return (aiohttp.ClientError, TimeoutError, OSError)
