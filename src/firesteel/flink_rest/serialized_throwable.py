"""Failures in the form that Flink's Java client reads.

Of a failure object the client only reads the field `serialized-throwable`: a `org.apache.flink.util.SerializedThrowable` in
Java's serialisation format. Without it the client considers the answer malformed, retries for a minute, and loses the
message. So this module writes that object as `ObjectOutputStream` would, without a JVM.
"""

from __future__ import annotations

import base64
import struct

from firesteel.rest.answers import Json

_MAGIC = b"\xac\xed\x00\x05"
_NULL, _REFERENCE, _CLASS, _OBJECT, _STRING, _END, _LONG_STRING = (
    b"\x70",
    b"\x71",
    b"\x72",
    b"\x73",
    b"\x74",
    b"\x78",
    b"\x7c",
)
_FIRST_HANDLE = 0x7E0000
_SERIALIZABLE, _WITH_WRITE_METHOD = 2, 3
_LONGEST_SHORT = 0xFFFF

_TEXT = "Ljava/lang/String;"


def failure_cause(class_name: str, message: str, stack_trace: str = "") -> Json:
    """The contract's form of a failure. Without a stack trace, the message is used instead."""
    stack_trace = stack_trace or f"{class_name}: {message}\n"
    return {
        "class": class_name,
        "stack-trace": stack_trace,
        "serialized-throwable": base64.b64encode(serialized_throwable(class_name, message, stack_trace)).decode(
            "ascii"
        ),
    }


def serialized_throwable(class_name: str, message: str, stack_trace: str) -> bytes:
    """The bytes of a SerializedThrowable with only its texts: message, stack trace and the class name."""
    out = _Writer()
    out.write(_MAGIC, _OBJECT)
    out.describe(
        "org.apache.flink.util.SerializedThrowable",
        7284183123441947635,
        _SERIALIZABLE,
        (("fullStringifiedStackTrace", _TEXT), ("originalErrorClassName", _TEXT), ("serializedException", "[B")),
    )
    out.describe("java.lang.Exception", -3387516993124229948, _SERIALIZABLE, ())
    out.describe(
        "java.lang.Throwable",
        -3042686055658047285,
        _WITH_WRITE_METHOD,
        (
            ("cause", "Ljava/lang/Throwable;"),
            ("detailMessage", _TEXT),
            ("stackTrace", "[Ljava/lang/StackTraceElement;"),
            ("suppressedExceptions", "Ljava/util/List;"),
        ),
    )
    out.write(_NULL)  # no superclass
    # The values, from the topmost class down, each class in the order of its fields.
    out.write(_NULL, _text(f"{class_name}: {message}"), _NULL, _NULL, _END)
    out.write(_text(stack_trace), _text(class_name), _NULL)
    return bytes(out.data)


class _Writer:
    """Counts handles: classes and texts that were already written are referred to by number."""

    def __init__(self) -> None:
        self.data = bytearray()
        self._handles = 0
        self._types: dict[str, int] = {}

    def write(self, *parts: bytes) -> None:
        for part in parts:
            self.data += part

    def describe(self, name: str, uid: int, flags: int, fields: tuple[tuple[str, str], ...]) -> None:
        self._handles += 1
        self.write(_CLASS, _name(name), struct.pack(">qBH", uid, flags, len(fields)))
        for field, kind in fields:
            self.write(kind[:1].encode(), _name(field))
            self._type(kind)
        self.write(_END)

    def _type(self, kind: str) -> None:
        handle = self._types.get(kind)
        if handle is None:
            self._types[kind] = _FIRST_HANDLE + self._handles
            self._handles += 1
            self.write(_text(kind))
        else:
            self.write(_REFERENCE, struct.pack(">I", handle))


def _name(text: str) -> bytes:
    raw = _modified_utf8(text)
    return struct.pack(">H", len(raw)) + raw


def _text(text: str) -> bytes:
    raw = _modified_utf8(text)
    if len(raw) <= _LONGEST_SHORT:
        return _STRING + struct.pack(">H", len(raw)) + raw
    return _LONG_STRING + struct.pack(">Q", len(raw)) + raw


def _modified_utf8(text: str) -> bytes:
    """Java's encoding: NUL takes two bytes, and characters beyond the basic plane two surrogates of three bytes each."""
    out = bytearray()
    raw = text.encode("utf-16-be", "surrogatepass")
    for (unit,) in struct.iter_unpack(">H", raw):
        if 0x01 <= unit <= 0x7F:
            out.append(unit)
        elif unit <= 0x7FF:
            out += bytes((0xC0 | unit >> 6, 0x80 | unit & 0x3F))
        else:
            out += bytes((0xE0 | unit >> 12, 0x80 | unit >> 6 & 0x3F, 0x80 | unit & 0x3F))
    return bytes(out)
