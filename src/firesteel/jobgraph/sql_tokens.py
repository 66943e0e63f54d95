"""A tokenizer of Spark SQL: enough to split a file at its semicolons and to read the statements that are ours."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_PLAIN = re.compile(
    r"""(?P<space>\s+)
      | (?P<comment>--[^\n]*)
      | (?P<name>`(?:[^`]|``)*`)
      | (?P<raw>[rR](?:'[^']*'|"[^"]*"))
      | (?P<text>'(?:\\.|''|[^'\\])*'|"(?:\\.|""|[^"\\])*")
      | (?P<number>\d+(?:\.\d+)?(?:[eE][-+]?\d+)?(?![\w]))
      | (?P<word>\w+)
      | (?P<mark>.)""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "b": "\b", "Z": "\x1a"}


@dataclass(frozen=True)
class Token:
    kind: str
    """space, comment, name (in backticks), raw, text, number, word, mark."""
    text: str
    start: int
    line: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)

    def is_word(self, *words: str) -> bool:
        return self.kind == "word" and self.text.upper() in words

    @property
    def value(self) -> str:
        """The value of the token, without quotes and escapes."""
        match self.kind:
            case "name":
                return self.text[1:-1].replace("``", "`")
            case "raw":
                return self.text[2:-1]
            case "text":
                quote = self.text[0]
                return re.sub(rf"\\(.)|{quote}{quote}", lambda m: _unescape(m, quote), self.text[1:-1], flags=re.DOTALL)
            case _:
                return self.text


def _unescape(match: re.Match[str], quote: str) -> str:
    char = match[1]
    if char is None:
        return quote
    # Spark keeps the backslash before the wildcards of LIKE.
    return f"\\{char}" if char in "%_" else _ESCAPES.get(char, char)


class UnclosedError(ValueError):
    """A quote or comment that is not closed."""

    def __init__(self, what: str, line: int) -> None:
        self.what = what
        self.line = line
        super().__init__(f"{what} that begins here is not closed")


def tokens(text: str) -> Iterator[Token]:
    position, line = 0, 1
    while position < len(text):
        if text.startswith("/*", position):
            kind, end = "comment", _comment_end(text, position, line)
        else:
            match = _PLAIN.match(text, position)
            assert match is not None  # `mark` takes any character
            kind, end = str(match.lastgroup), match.end()
            if kind == "mark" and match[0] in "'\"`":
                raise UnclosedError("the name in backticks" if match[0] == "`" else "the text", line)
        yield Token(kind, text[position:end], position, line)
        line += text.count("\n", position, end)
        position = end


def _comment_end(text: str, start: int, line: int) -> int:
    """Block comments nest, as Spark's do."""
    depth, position = 0, start
    while position < len(text):
        if text.startswith("/*", position):
            depth, position = depth + 1, position + 2
        elif text.startswith("*/", position):
            depth, position = depth - 1, position + 2
            if depth == 0:
                return position
        else:
            position += 1
    raise UnclosedError("the comment", line)


def statements(text: str) -> Iterator[list[Token]]:
    """The tokens of each statement, without its semicolon; comments before a statement belong to it."""
    current: list[Token] = []
    for token in tokens(text):
        if token.kind == "mark" and token.text == ";":
            yield current
            current = []
        else:
            current.append(token)
    yield current
