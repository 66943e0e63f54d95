"""Which variables of a node's environment its drivers and engines get (S40).

Drivers run code of users and engines run their queries, so what a node has in its environment is theirs to read. They get what
programs need to find their way about a machine, never a variable of Firesteel's own, and nothing else unless an admin names it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

_NAMES = """
    PATH HOME USER LOGNAME SHELL TERM COLUMNS TZ TZDIR LANG LANGUAGE LC_* TMPDIR TMP TEMP HOSTNAME
    LD_LIBRARY_PATH DYLD_LIBRARY_PATH LD_PRELOAD MALLOC_*
    PYTHON* VIRTUAL_ENV CONDA_PREFIX CONDA_DEFAULT_ENV XDG_CACHE_HOME XDG_CONFIG_HOME XDG_DATA_HOME XDG_RUNTIME_DIR
    JAVA_HOME JAVA_TOOL_OPTIONS JDK_JAVA_OPTIONS _JAVA_OPTIONS
    HADOOP_HOME HADOOP_CONF_DIR HADOOP_COMMON_HOME HADOOP_HDFS_HOME HADOOP_YARN_HOME HADOOP_CLASSPATH HADOOP_USER_NAME
    YARN_CONF_DIR HIVE_CONF_DIR KRB5_CONFIG
    SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE CURL_CA_BUNDLE
    OMP_* OPENBLAS_* MKL_* NUMEXPR_* ARROW_* CUDA_VISIBLE_DEVICES NVIDIA_VISIBLE_DEVICES
    KUBERNETES_SERVICE_HOST KUBERNETES_SERVICE_PORT
"""
_ORDINARY = tuple(_NAMES.split())
_PROXIES = frozenset({"http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy"})
OURS = ("FIRESTEEL_", "_FIRESTEEL_")


def inherited(passed: Iterable[str], environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What of `environ` a driver or an engine gets.

    Args:
        passed: Further names (`driver.environment.pass`); a `*` stands for any characters. Firesteel's own are never passed.
    """
    named = tuple(passed)
    return {k: v for k, v in environ.items() if not k.startswith(OURS) and (_ordinary(k, v) or _fits(k, named))}


def _ordinary(name: str, value: str) -> bool:
    if name.lower() in _PROXIES:
        return "@" not in value  # else there is a password in it
    return _fits(name, _ORDINARY)


def _fits(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
