"""Who a worker is to the nodes: an id and a secret, which it gets once, for a join token."""

from __future__ import annotations

import contextlib
import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from firesteel.errors import EnvironmentNotReadyError, FiresteelError, ForbiddenError, UnauthenticatedError
from firesteel.fs.files import read_json, write_json

FILE = "credential.json"
DRAWN = "joining.json"


@dataclass(frozen=True, slots=True)
class WorkerCredential:
    worker: str
    name: str
    secret: str = field(repr=False)

    @property
    def authorization(self) -> str:
        return f"Bearer fst_worker.{self.worker}.{self.secret}"


def load_credential(home: Path) -> WorkerCredential | None:
    data = read_json(home / FILE)
    if data is None:
        return None
    try:
        return WorkerCredential(str(data["worker"]), str(data["name"]), str(data["secret"]))
    except (KeyError, TypeError) as error:
        raise EnvironmentNotReadyError(
            f"{home / FILE} is not the credential of a worker; remove it and start the worker with a new --token"
        ) from error


def new_credential(home: Path, worker: str, name: str) -> WorkerCredential:
    """Draw a secret, and keep it on the disk until the worker has joined: a join whose answer was lost is repeated with the
    same one."""
    data = read_json(home / DRAWN)
    known = data.get("secret") if isinstance(data, dict) and data.get("name") == name else None
    secret = known if isinstance(known, str) else secrets.token_hex(32)
    write_json(home / DRAWN, {"worker": worker, "name": name, "secret": secret})
    return WorkerCredential(worker, name, secret)


def keep(home: Path, credential: WorkerCredential) -> None:
    write_json(home / FILE, {"worker": credential.worker, "name": credential.name, "secret": credential.secret})
    (home / DRAWN).unlink(missing_ok=True)


async def join(client: httpx.AsyncClient, addresses: Sequence[str], token: str, credential: WorkerCredential) -> None:
    """Join the cluster with a one-time token. Only the digest of the secret is sent."""
    body = {
        "id": credential.worker,
        "name": credential.name,
        "secretSha256": hashlib.sha256(credential.secret.encode()).hexdigest(),
    }
    failures = []
    for address in addresses:
        try:
            response = await client.post(
                f"{address}/workers/join", json=body, headers={"authorization": f"Bearer {token}"}
            )
        except httpx.HTTPError as error:
            failures.append(f"{address}: {str(error) or type(error).__name__}")
            continue
        if response.is_success:
            return
        message = f"HTTP {response.status_code}"
        with contextlib.suppress(ValueError, LookupError, TypeError):
            message = str(response.json()["errors"][0])
        if response.status_code == 401:
            raise UnauthenticatedError(f"the join token is not accepted: {message}")
        if response.status_code == 403:
            raise ForbiddenError(message)
        if response.status_code < 500:
            raise FiresteelError(message)
        failures.append(f"{address}: {message}")
    raise FiresteelError(f"no node answered: {'; '.join(failures)}")
