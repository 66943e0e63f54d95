"""Finding the API server: in a pod through its service account, elsewhere through a kubeconfig."""

from __future__ import annotations

import asyncio
import importlib
import os
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any

from firesteel.config.high_availability import KubernetesOptions
from firesteel.errors import InvalidConfigError, Problem


@dataclass(frozen=True, slots=True)
class ApiConnection:
    client: Any
    """A `kubernetes_asyncio.client.ApiClient`; the caller closes it."""
    refresh: Callable[[], Coroutine[Any, Any, None]] | None
    """Renews a credential that comes from a command of the kubeconfig, for as long as it is awaited. The credential of a
    pod is reloaded automatically."""


async def connect(options: KubernetesOptions) -> ApiConnection:
    """Make a client; no request has been sent to the server yet.

    Raises:
        InvalidConfigError: The library is not installed, or no readable configuration was found.
    """
    # In a thread: importing this large package takes a second.
    kubernetes = await asyncio.to_thread(_library)
    settings = kubernetes.client.Configuration()
    refresh = None
    by_pod = options.config_file is None and options.context is None and _in_pod()
    try:
        if by_pod:
            kubernetes.config.load_incluster_config(client_configuration=settings)
        else:
            loader = await kubernetes.config.load_kube_config(
                config_file=str(options.config_file) if options.config_file is not None else None,
                context=options.context,
                client_configuration=settings,
                persist_config=False,
            )
            refresh = partial(kubernetes.config.refresh_token, loader, settings)
        # Reads the certificates.
        return ApiConnection(kubernetes.client.ApiClient(settings), refresh)
    except Exception as error:  # the library may raise anything for a malformed file
        file = options.config_file or os.environ.get("KUBECONFIG") or "~/.kube/config"
        named = "the service account of this pod" if by_pod else f"the kubeconfig {file}"
        message = f"{named} cannot be used to reach the API server of Kubernetes: {error!r}"
        fix = "name a kubeconfig, and one of its contexts with kubernetes.context"
        raise InvalidConfigError([Problem(message, fix, field="kubernetes.config.file")]) from error


def _in_pod() -> bool:
    return bool(os.environ.get("KUBERNETES_SERVICE_HOST"))


def _library() -> ModuleType:
    try:
        package = importlib.import_module("kubernetes_asyncio")
        importlib.import_module("kubernetes_asyncio.client")
        importlib.import_module("kubernetes_asyncio.config")
    except ImportError as error:
        raise InvalidConfigError(
            [
                Problem(
                    f"the backend 'kubernetes' needs a library, which cannot be imported: {error}",
                    'pip install "firesteel[kubernetes]"',
                    field="high-availability.type",
                )
            ]
        ) from error
    return package
