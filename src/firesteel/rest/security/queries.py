"""Queries of non-admins may only read.

Spark runs a command wherever it expects a query: `ADD JAR 'http://...'` fetches and loads a file (S9), and `EXECUTE IMMEDIATE
'SET ...'` changes protected settings (S7). So the first word of a query must be one of the few that start a query, and
clauses that write, run a program or call Java are refused too (S39).

This check answers early and with a clear message. The protection that no spelling can evade is in the engine: queries are
sent where Spark's grammar allows no command (`spark.query_text`), and its restricted mode is on (`engines.command`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise

from firesteel.errors import Problem
from firesteel.jobgraph.model import JobGraph, Sql
from firesteel.jobgraph.sql_tokens import Token, UnclosedError, tokens

BEGINNINGS = frozenset({"select", "with", "from", "values", "table"})
_WRITES = {"INSERT": ("INTO", "OVERWRITE"), "MERGE": ("INTO",)}
_JAVA = frozenset({"reflect", "java_method", "try_reflect"})
UNCLOSED = "/*"
_WORD = re.compile(r"\w+")
# As in Spark's lexer: a backslash at the end of a line continues its comment on the next line.
_LINE_COMMENT = re.compile(r"--(?:\\\n|[^\r\n])*")
_COMMENT_EDGE = re.compile(r"/\*|\*/")


def refused_queries(graph: JobGraph) -> list[Problem]:
    """A problem for each text that is not a query where one is expected."""
    return list(_refused(v for v in graph.vertices if isinstance(v, Sql)))


def _refused(vertices: Iterable[Sql]) -> Iterable[Problem]:
    for vertex in vertices:
        word = first_word(vertex.query)
        if word and word not in BEGINNINGS:
            message = f"begins with {word[:50].upper()}, which is a command and not a query"
            fix = "write one SELECT; commands are only allowed in scripts, or to admins"
            if word == UNCLOSED:
                message, fix = "begins with a comment that is not closed", "close it"
            yield Problem(message, fix, vertex=vertex.name, field="query")
        elif message := _more_than_reading(vertex.query):
            yield Problem(message, "write one SELECT that reads only", vertex=vertex.name, field="query")


def _more_than_reading(text: str) -> str:
    """What a query does besides reading, judging by its words; empty if nothing."""
    try:
        words = [t for t in tokens(text) if t.kind not in ("space", "comment")]
    except UnclosedError:
        return ""  # Spark does not run it either
    for token, following in pairwise(words):
        if token.kind == "word" and following.is_word(*_WRITES.get(token.text.upper(), ())):
            return f"holds {token.text.upper()} {following.text.upper()}, which writes"
        if token.is_word("USING") and following.kind in ("text", "raw"):
            return "runs a program (USING and a command)"
        if following.text == "(" and _name(token) in _JAVA:
            return f"calls Java ({_name(token)})"
    return ""


def _name(token: Token) -> str:
    return token.value.lower() if token.kind in ("word", "name") else ""


def first_word(text: str) -> str:
    """The first word outside comments, in lower case; empty when there is none. Brackets before it do not matter.

    UNCLOSED for a comment without an end, as Spark may see its end elsewhere.
    """
    position = 0
    while position < len(text):
        if text.startswith("--", position):
            found = _LINE_COMMENT.match(text, position)
            assert found is not None
            position = found.end()
        elif text.startswith("/*", position) and not text.startswith("/*+", position):  # which would be a hint
            position = _after_comment(text, position)
            if position == len(text):
                return UNCLOSED
        elif word := _WORD.match(text, position):
            return word[0].lower()
        else:
            position += 1
    return ""


def _after_comment(text: str, position: int) -> int:
    """The end of the comment that starts here. Comments may be nested."""
    depth = 0
    for edge in _COMMENT_EDGE.finditer(text, position):
        depth += 1 if edge[0] == "/*" else -1
        if depth == 0:
            return edge.end()
    return len(text)
