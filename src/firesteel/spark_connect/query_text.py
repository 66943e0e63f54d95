"""The text of a query as Spark gets it: in parentheses, where Spark's grammar allows only a query (S39).

Spark runs a command wherever it expects a query, and some commands begin like one: `WITH ... INSERT`, `FROM ... INSERT`. In
parentheses none of them parses, and a query means what it means without: the same plan, the same order, the same hints. The
query stands on lines of its own, so that columns in Spark's messages are right as they are and lines are one too high.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from firesteel.jobgraph.sql_tokens import UnclosedError, tokens

_OPEN = "(\n"
# Two line breaks: a comment may end in a backslash, which carries it over to the next line.
_CLOSE = "\n\n)"
_POSITION = re.compile(r"\bline (\d+)(, | )(pos(?:ition)?) (\d+)(\) ==\n([^\n]*))?")
_SHOWN = "== SQL ==\n"
_END = re.compile(r"at or near '\)'")


def as_query(text: str) -> str:
    """What to send to Spark for a query of a job."""
    return f"{_OPEN}{without_semicolons(text)}{_CLOSE}"


def without_semicolons(text: str) -> str:
    """Those at the end, which Spark allows; comments may stand after and between them."""
    try:
        found = list(tokens(text))
    except UnclosedError:
        return text  # for Spark to object to
    ends = []
    for token in reversed(found):
        if token.kind == "mark" and token.text == ";":
            ends.append(token.start)
        elif token.kind not in ("space", "comment"):
            break
    for start in ends:  # the last one first
        text = f"{text[:start]} {text[start + 1 :]}"
    return text


def in_own_lines(message: str, queries: Sequence[str]) -> str:
    """A message of Spark about one of these queries, with positions in the text that the user wrote."""
    for query in queries:
        shown = f"{_SHOWN}{_OPEN}"
        if shown in message and _matches_shown(message, query):
            message = message.replace(shown, _SHOWN, 1)
            head, mark, tail = message.partition(_SHOWN)
            message = head + mark + re.sub(r"\n\n\)(?=\n|$)", "", tail, count=1)
            break
    lines = [query.splitlines() for query in queries]
    past = False

    def moved(found: re.Match[str]) -> str:
        nonlocal past
        line, column, shown = int(found[1]), int(found[4]), found[6]
        for own in lines:
            if line - 2 < len(own) and (shown is None or shown == own[line - 2]) and line >= 2:
                at = (line - 1, column)
                break
            if shown is None and line == len(own) + 3:  # the parenthesis that ends it
                at, past = (len(own), len(own[-1]) if own else 0), True
                break
        else:
            return found[0]
        rest = found[5] or ""
        return f"line {at[0]}{found[2]}{found[3]} {at[1]}{rest}"

    message = _POSITION.sub(moved, message)
    return _END.sub("at or near end of input", message, count=1) if past else message


def _matches_shown(message: str, query: str) -> bool:
    """Whether the text in a message is this query; Spark puts a line of marks into the middle of it."""
    _, _, shown = message.partition(f"{_SHOWN}{_OPEN}")
    given = shown.splitlines()
    return all(line in given for line in query.splitlines())
