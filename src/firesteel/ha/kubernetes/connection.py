"""Finding the API server: from inside a pod by its service account, elsewhere by a kubeconfig."""

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
    """Keeps a credential fresh for which a command of the kubeconfig has to be run, for as long as it is awaited. That of
    a pod is read again by itself."""


async def connect(options: KubernetesOptions) -> ApiConnection:
    """A client; nothing has been asked of the server yet.

    Raises:
        InvalidConfigError: The library is not installed, or there is no configuration that could be read.
    """
    # In a thread: it is a large package, and importing it takes a second.
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
    except Exception as error:  # whatever the library stumbles over in somebody's file
        file = options.config_file or os.environ.get("KUBECONFIG") or "~/.kube/config"
        named = "the service account of this pod" if by_pod else f"the kubeconfig {file}"
        message = f"{named} does not tell how to reach the API server of Kubernetes: {error!r}"
        fix = "name a kubeconfig, and with kubernetes.context one of its contexts"
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
                    f"the backend 'kubernetes' needs a library that cannot be imported: {error}",
                    'pip install "firesteel[kubernetes]"',
                    field="high-availability.type",
                )
            ]
        ) from error
    return package
