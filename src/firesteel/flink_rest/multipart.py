"""The one file of a multipart body, as a stream: never more of it is in memory than the client sends at once (S24)."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import ClientDisconnect, Request

from firesteel.rest.errors import HttpError

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks

MAX_PARTS = 16
"""The number of parts of a form, of which all but the file are skipped."""
MAX_FIELDS = 1 << 16
"""The total size of the skipped fields in bytes."""
MAX_HEADERS = 8
MAX_HEADER_SIZE = 4096


@dataclass(frozen=True, slots=True)
class FilePart:
    name: str
    """The client's name for it: a text to be checked, never a path (S5)."""
    chunks: AsyncIterator[bytes]
    """Its bytes. Ends when the whole body was read without a second file; raises HttpError for a malformed body."""


async def file_part(request: Request) -> FilePart:
    """The file in the body, read up to the start of its bytes. Raises HttpError 400."""
    kind, options = parse_options_header(request.headers.get("content-type"))
    boundary = options.get(b"boundary")
    if kind != b"multipart/form-data" or not boundary:
        raise _files(0)
    parts = _events(request, boundary)
    skipped = 0
    async for event in parts:
        if isinstance(event, _Part) and event.filename is not None:
            return FilePart(event.filename, _rest(parts))
        if isinstance(event, bytes):
            skipped = _skip(skipped, event)
    raise _files(0)


@dataclass(frozen=True, slots=True)
class _Part:
    filename: str | None


_Event = _Part | bytes


async def _rest(parts: AsyncIterator[_Event]) -> AsyncIterator[bytes]:
    in_file = True
    skipped = 0
    async for event in parts:
        if isinstance(event, _Part):
            in_file = False
            if event.filename is not None:
                raise _files(2)
        elif in_file:
            yield event
        else:
            skipped = _skip(skipped, event)


def _skip(skipped: int, data: bytes) -> int:
    skipped += len(data)
    if skipped > MAX_FIELDS:
        raise HttpError(400, f"The other fields have more than {MAX_FIELDS} bytes; send only the file.")
    return skipped


def _files(count: int) -> HttpError:
    return HttpError(400, f"Exactly 1 file must be sent, received {count}.")


async def _events(request: Request, boundary: bytes) -> AsyncIterator[_Event]:
    reader = _Reader()
    try:
        parser = MultipartParser(
            boundary, reader.callbacks(), max_header_count=MAX_HEADERS, max_header_size=MAX_HEADER_SIZE
        )
        async for chunk in request.stream():
            parser.write(chunk)
            while reader.events:
                yield reader.events.popleft()
            if reader.ended:
                return
    except FormParserError as error:
        raise HttpError(400, f"The body is not a valid multipart body: {error}") from error
    except ClientDisconnect:
        pass
    raise HttpError(400, "The body is incomplete; send it again.")


class _Reader:
    """What the parser found in a chunk."""

    def __init__(self) -> None:
        self.events: deque[_Event] = deque()
        self.ended = False
        self._parts = 0
        self._name = b""
        self._value = b""
        self._disposition = b""

    def callbacks(self) -> MultipartCallbacks:
        return {
            "on_part_begin": self._begin,
            "on_header_begin": self._header,
            "on_header_field": self._field,
            "on_header_value": self._text,
            "on_header_end": self._header_end,
            "on_headers_finished": self._headers_end,
            "on_part_data": self._data,
            "on_end": self._end,
        }

    def _begin(self) -> None:
        self._parts += 1
        if self._parts > MAX_PARTS:
            raise HttpError(400, f"The body has more than {MAX_PARTS} parts; send only the file.")
        self._disposition = b""

    def _header(self) -> None:
        self._name = self._value = b""

    def _field(self, data: bytes, start: int, end: int) -> None:
        self._name += data[start:end]

    def _text(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _header_end(self) -> None:
        if self._name.lower() == b"content-disposition":
            self._disposition = self._value

    def _headers_end(self) -> None:
        _, options = parse_options_header(self._disposition)
        name = options.get(b"filename")
        self.events.append(_Part(None if name is None else name.decode("utf-8", "replace")))

    def _data(self, data: bytes, start: int, end: int) -> None:
        self.events.append(data[start:end])

    def _end(self) -> None:
        self.ended = True
