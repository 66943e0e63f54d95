"""All local paths that the path of a source or a sink could mean to Spark: URLs, patterns, encodings (S39).

It is used to refuse paths, so it errs on the safe side: an ambiguous text is read in all ways.
"""

from __future__ import annotations

import posixpath
import re
from fnmatch import fnmatchcase
from urllib.parse import unquote

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_BRACES = re.compile(r"\{([^{}]*)\}")
MOST_ALTERNATIVES = 64


def may_reach(path: str, root: str) -> bool:
    """Whether `path` could be the local directory `root`, something in it, or one of its parents."""
    wanted = _parts(root)
    meant = local_patterns(path)
    return meant is None or any(_meet(_parts(pattern), wanted) for pattern in meant)


def local_patterns(path: str) -> set[str] | None:
    """Absolute paths, with the wildcards of the text; empty for other file systems, None if there are too many."""
    found: set[str] = set()
    for text in {path, unquote(path)}:
        alternatives = _expanded(text.strip())
        if alternatives is None:
            return None
        for alternative in alternatives:
            found |= {_normal(meaning) for meaning in _local(alternative)}
    return found


def _local(text: str) -> set[str]:
    scheme = _SCHEME.match(text)
    if scheme is not None:
        if scheme[1].lower() not in ("file", "local"):
            return set()
        text = text[scheme.end() :]
    meanings = {text}
    if text.startswith("//"):  # a host, or an extra slash
        meanings.add("/" + text[2:].partition("/")[2])
    return {meaning for meaning in meanings if meaning.startswith("/")}


def _normal(path: str) -> str:
    plain = re.sub(r"\\(.)", r"\1", path).replace("[^", "[!")
    return posixpath.normpath("/" + plain.lstrip("/"))


def _expanded(text: str) -> list[str] | None:
    """The expansions of alternatives in braces; None when there are too many."""
    todo, done = [text], list[str]()
    while todo:
        if len(todo) + len(done) > MOST_ALTERNATIVES:
            return None
        one = todo.pop()
        braces = _BRACES.search(one)
        if braces is None:
            done.append(one)
        else:
            todo += [one[: braces.start()] + choice + one[braces.end() :] for choice in braces[1].split(",")]
    return done


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part]


def _meet(pattern: list[str], wanted: list[str]) -> bool:
    return all(fnmatchcase(name, part) for name, part in zip(wanted, pattern, strict=False))
