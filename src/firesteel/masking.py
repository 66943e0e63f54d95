"""Secrets are masked in anything that is shown: settings, environments, job graphs, log lines, messages (S27).

A secret is recognised by its key, or by its own shape (a bearer token, a private key, a password in a URL). Both err on the
side of hiding. Masking is idempotent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, cast

from firesteel.config.option import MASK

T = TypeVar("T")

_SECRET_KEY = re.compile(
    r"passw(?:or)?d|passphrase|(?<![a-z])pwd|secret|token|credential|authorization|sasl|jaas|keytab|cookie"
    r"|(?:access|private|api|account|auth|encryption|signing|session|shared|master|consumer|client)[._-]?key"
    r"|connection[._-]?string|signature|(?<![a-z])sig(?![a-z])",
    re.IGNORECASE,
)
# These keys hold the location or the lifetime of a secret, which people need to see.
_HARMLESS_KEY = re.compile(
    r"(?:[._-]file|File|[._-](?:provider|timeout|interval|enabled|mechanism|class|py|java|scala))$"
)

# All of these are read in one pass without backtracking over more than they have matched: a log line may be long (S25).
_IN_TEXT: Sequence[tuple[re.Pattern[str], str]] = (
    (
        re.compile(r"-----BEGIN ([A-Z ]{0,30})PRIVATE KEY-----.*?(?:-----END \1PRIVATE KEY-----|\Z)", re.DOTALL),
        rf"-----BEGIN PRIVATE KEY----- {MASK} -----END PRIVATE KEY-----",
    ),
    (re.compile(r"(?<![A-Za-z0-9_])fst_[0-9A-Za-z]{1,64}[._][0-9A-Za-z._=-]{8,}"), MASK),
    (re.compile(r"(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{2,}\.[A-Za-z0-9_-]*"), MASK),
    (re.compile(r"\b(Bearer|Basic|Digest|Negotiate)[ \t]+[A-Za-z0-9+/=._~-]{6,}", re.IGNORECASE), rf"\1 {MASK}"),
    (re.compile(r"(?<![A-Za-z0-9])(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9])"), MASK),
    # A key with a slash in it, as AWS has them, looks like an invalid port.
    (
        re.compile(
            r"(?<![A-Za-z0-9+.-])([A-Za-z][A-Za-z0-9+.-]{0,30}://)"
            r"[^\s/?#@:\"'<>]{1,200}:(?!\d{1,5}(?:[/?#\s]|\Z))[^\s@\"'<>]{1,300}@"
        ),
        rf"\1{MASK}@",
    ),
    # The last @ before the path ends the user part: a password may have an @ of its own.
    (re.compile(r"(?<![A-Za-z0-9+.-])([A-Za-z][A-Za-z0-9+.-]{0,30}://)[^\s/?#\"'<>]{0,2000}@"), rf"\1{MASK}@"),
)
# key=value, key: value, "key": "value", and the same after a ? & or ; of a URL.
_KEY = re.compile(r"(?<![A-Za-z0-9_.-])([A-Za-z0-9_.-]++)(?:\\?[\"'])?[ \t]{0,4}[=:][ \t]{0,4}")
# A command line in one text: --password value.
_FLAG = re.compile(r"(?<![^\s\"'])--?([A-Za-z][A-Za-z0-9_.-]*+)[ \t]{1,4}(?![ \t-])")
_VALUE = re.compile(
    r"""
    "(?:[^"\\\n]|\\.)*" | '(?:[^'\\\n]|\\.)*'
    | (?!//|(?:bearer|basic|digest|negotiate)\b)  # a scheme, and what is masked by its shape already
      [^\s;&]+                                    # it goes far: a password may have a comma in it
    """,
    re.VERBOSE | re.IGNORECASE,
)


def is_secret_key(key: str) -> bool:
    """Whether the value of `key` must not be shown."""
    return _SECRET_KEY.search(key) is not None and _HARMLESS_KEY.search(key) is None


def mask(value: T) -> T:
    """`value` as it may be shown: mappings, lists and texts in any depth, with every secret masked.

    Three shapes of settings are known: `{"x.password": "..."}`, `{"key": "x.password", "value": "..."}` as the
    configuration answers have it, and a list of arguments (`["--password", "..."]`).
    """
    match value:
        case str():
            return cast("T", mask_text(value))
        case Mapping():
            return cast("T", _mask_mapping(value))
        case tuple():
            return cast("T", tuple(_mask_items(value)))
        case list():
            return cast("T", _mask_items(value))
        case _:
            return value


def mask_text(text: str) -> str:
    """The text with every secret masked that is recognised by its shape or by the key before it."""
    for pattern, shown in _IN_TEXT:
        text = pattern.sub(shown, text)
    return _mask_values(_mask_values(text, _KEY), _FLAG)


def _mask_values(text: str, keys: re.Pattern[str]) -> str:
    shown: list[str] = []
    done = 0
    # Only keys are matched, as a value may contain pairs of its own: url=https://host/?password=...
    for key in keys.finditer(text):
        if key.start() < done or not is_secret_key(key[1]):
            continue
        if value := _VALUE.match(text, key.end()):
            quote = value[0][0] if len(value[0]) > 1 and value[0][0] in "\"'" and value[0][-1] == value[0][0] else ""
            shown += (text[done : key.end()], quote, MASK, quote)
            done = value.end()
    return "".join((*shown, text[done:]))


def _mask_mapping(mapping: Mapping[Any, Any]) -> dict[Any, Any]:
    named = mapping.get("key", mapping.get("name"))
    if isinstance(named, str) and "value" in mapping and is_secret_key(named):
        return {k: _hidden(v) if k == "value" else mask(v) for k, v in mapping.items()}
    return {k: _hidden(v) if isinstance(k, str) and is_secret_key(k) else mask(v) for k, v in mapping.items()}


def _mask_items(items: Sequence[Any]) -> list[Any]:
    shown: list[Any] = []
    hide_next = False
    for item in items:
        is_flag = isinstance(item, str) and item.startswith("-")
        shown.append(_hidden(item) if hide_next and not is_flag else mask(item))
        hide_next = is_flag and "=" not in item and is_secret_key(item)
    return shown


def _hidden(value: Any) -> Any:
    """What is shown in place of a secret. An empty value and a switch are not secrets."""
    return value if value is None or isinstance(value, bool) else MASK
