"""Archives that are not fit to be unpacked (S24, S5, S6)."""

from __future__ import annotations

import io
import os
import stat
import struct
import subprocess
import sys
import zipfile
import zlib
from pathlib import Path

import pytest

from firesteel.blob.archive_check import MAX_DEPTH, MAX_NESTING, ZipContents, check_zip
from firesteel.errors import InvalidRequestError

MB = 1 << 20


def check(path: Path, *, entries: int = 1000, total: int = 64 * MB, ratio: float = 200) -> ZipContents:
    return check_zip(path, max_entries=entries, max_total=total, max_ratio=ratio)


def refused(path: Path, *, entries: int = 1000, total: int = 64 * MB, ratio: float = 200) -> str:
    with pytest.raises(InvalidRequestError) as caught:
        check(path, entries=entries, total=total, ratio=ratio)
    return str(caught.value)


def zipped(path: Path, *members: tuple[str | zipfile.ZipInfo, bytes], method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", method) as z:
        for name, content in members:
            z.writestr(name, content)
    return path


def raw_member(name: bytes, content: bytes, *, packed: bytes | None = None, method: int = 8, **claims: int) -> bytes:
    """A local header with its data, then the entry of the directory: for `raw_zip`. `claims` are what it lies about."""
    if packed is None:
        deflater = zlib.compressobj(9, zlib.DEFLATED, -15)
        packed = deflater.compress(content) + deflater.flush() if method == 8 else content
    flags = claims.get("flags", 0)
    size = claims.get("size", len(content))
    local_name = b"local" if claims.get("other_name") else name
    crc = zlib.crc32(content)
    local = struct.pack(
        "<4s2B4HL2L2H", b"PK\3\4", 20, 0, flags, method, 0, 0, crc, len(packed), size, len(local_name), 0
    )
    central = struct.pack(
        "<4s4B4HL2L5H2L",
        *(b"PK\1\2", 20, 3, 20, 0, flags, method, 0, 0, crc, len(packed), size, len(name), 0, 0, 0, 0),
        *(claims.get("mode", 0o100644) << 16, 0),
    )
    return struct.pack("<L", len(local + local_name + packed)) + local + local_name + packed + central + name


def raw_zip(path: Path, *members: bytes, comment: bytes = b"", tail: bytes = b"", count: int | None = None) -> Path:
    body, directory = b"", b""
    for member in members:
        length = struct.unpack_from("<L", member)[0]
        place = len(body)
        body += member[4 : 4 + length]
        central = bytearray(member[4 + length :])
        central[42:46] = struct.pack("<L", place)
        directory += central
    number = len(members) if count is None else count
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, number, number, len(directory), len(body), len(comment))
    path.write_bytes(body + directory + end + comment + tail)
    return path


# What is fit


def test_usual_archives_are_fit(tmp_path: Path) -> None:
    members = [("pkg/__init__.py", b""), ("pkg/mod.py", b"x = 1\n" * 1000), ("pkg/", b""), ("a-b/ümlaut.txt", b"x")]
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        path = zipped(tmp_path / "a.zip", *members, method=method)
        assert check(path) == ZipContents(4, 6001)
    assert check(zipped(tmp_path / "empty.zip")) == ZipContents(0, 0)
    assert check(raw_zip(tmp_path / "raw.zip", raw_member(b"a", b"content"), comment=b"hello")) == ZipContents(1, 7)


def test_archive_that_was_written_as_a_stream_is_fit(tmp_path: Path) -> None:
    """Its sizes stand behind the data; and zip64 in the heads of members, as careful programs write it."""

    class Pipe(io.RawIOBase):
        def __init__(self) -> None:
            self.data = b""

        def writable(self) -> bool:
            return True

        def write(self, data: object, /) -> int:
            self.data += bytes(data)  # type: ignore[call-overload]
            return len(bytes(data))  # type: ignore[call-overload]

    pipe = Pipe()
    with zipfile.ZipFile(pipe, "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr("a.py", b"a" * 1000)
        with z.open("b.py", "w", force_zip64=True) as f:
            f.write(b"b" * 2000)
    (tmp_path / "a.zip").write_bytes(pipe.data)
    assert check(tmp_path / "a.zip") == ZipContents(2, 3000)


def test_program_with_an_archive_behind_it_is_fit(tmp_path: Path) -> None:
    path = zipped(tmp_path / "a.zip", ("__main__.py", b"print('hello')"), ("x", b"y"))
    path.write_bytes(b"#!/usr/bin/env python3\n" + path.read_bytes())
    assert check(path).entries == 2
    out = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=True)
    assert out.stdout == "hello\n"


def test_archive_with_a_large_directory_is_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With more than 65535 members the end of an archive is written in another form (zip64); here already with 20."""
    monkeypatch.setattr(zipfile, "ZIP_FILECOUNT_LIMIT", 10)
    path = zipped(tmp_path / "a.zip", *[(f"{n}", b"x") for n in range(20)])
    assert b"PK\6\6" in path.read_bytes()
    assert check(path, entries=20).entries == 20
    assert "more than 19 members" in refused(path, entries=19)


def test_well_packed_small_files_are_no_bombs(tmp_path: Path) -> None:
    assert check(zipped(tmp_path / "a.zip", ("zeros", bytes(MB))), ratio=2).total == MB


# Bombs


def test_member_that_unpacks_to_far_more_than_it_is(tmp_path: Path) -> None:
    path = zipped(tmp_path / "a.zip", ("bomb", bytes(8 * MB)))
    assert "'bomb' unpacks to more than 200 times its packed size" in refused(path)
    assert check(path, ratio=2000).total == 8 * MB


def test_members_that_are_too_much_together(tmp_path: Path) -> None:
    path = zipped(tmp_path / "a.zip", *[(f"{n}", os.urandom(MB)) for n in range(4)], method=zipfile.ZIP_STORED)
    assert check(path, total=4 * MB).total == 4 * MB
    assert "unpacks to more than 4,194,303 bytes" in refused(path, total=4 * MB - 1)


def test_size_is_counted_and_not_believed(tmp_path: Path) -> None:
    """Python stops where the header says; other programs unpack on."""
    path = raw_zip(tmp_path / "a.zip", raw_member(b"bomb", bytes(8 * MB), size=10))
    with zipfile.ZipFile(path) as z:
        assert z.getinfo("bomb").file_size == 10
    assert "unpacks to more than" in refused(path)
    assert "states a wrong size" in refused(raw_zip(tmp_path / "b.zip", raw_member(b"x", b"content", size=3)))
    assert "states a wrong size" in refused(raw_zip(tmp_path / "c.zip", raw_member(b"x", b"content", size=30)))


def test_many_members_are_counted_and_not_all_read(tmp_path: Path) -> None:
    """An archive of 65535 names may claim fewer, or more; the reader stops at the limit."""
    members = [raw_member(b"%d" % n, b"", method=0) for n in range(300)]
    assert "more than 100 members" in refused(raw_zip(tmp_path / "a.zip", *members), entries=100)
    assert "directory that is shorter" in refused(raw_zip(tmp_path / "b.zip", *members, count=50), entries=100)
    assert "is missing" in refused(raw_zip(tmp_path / "c.zip", *members, count=60_000), entries=100_000)


def test_members_that_share_their_bytes(tmp_path: Path) -> None:
    """The bomb that needs no nesting: one kernel of data under very many names."""
    raw = bytearray(
        raw_zip(tmp_path / "a.zip", raw_member(b"a", b"content"), raw_member(b"a", b"content")).read_bytes()
    )
    second = raw.rindex(b"PK\1\2")
    raw[second + 42 : second + 46] = struct.pack("<L", 0)
    (tmp_path / "a.zip").write_bytes(raw)
    assert "overlapping members" in refused(tmp_path / "a.zip")


def nested(depth: int, content: bytes = b"x") -> bytes:
    for _ in range(depth):
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as z:
            z.writestr("inner.zip", content)
        content = out.getvalue()
    return content


def test_archives_in_archives(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    path.write_bytes(nested(1 + MAX_NESTING))
    assert check(path).entries == 1 + MAX_NESTING
    path.write_bytes(nested(2 + MAX_NESTING))
    assert "nests archives too deeply" in refused(path)


def test_inner_archives_count(tmp_path: Path) -> None:
    """Bombs, members and bytes inside an archive inside."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr("bomb", bytes(8 * MB))
    path = zipped(tmp_path / "a.zip", *[(f"{n}.zip", out.getvalue()) for n in range(4)], method=zipfile.ZIP_STORED)
    assert "'bomb' unpacks to more than" in refused(path)
    assert check(path, ratio=2000).total == pytest.approx(32 * MB, rel=0.01)
    assert "unpacks to more than" in refused(path, ratio=2000, total=20 * MB)
    assert "more than 7 members" in refused(path, ratio=2000, entries=7)


def test_member_that_only_begins_like_an_archive_is_a_file(tmp_path: Path) -> None:
    assert check(zipped(tmp_path / "a.zip", ("data", b"PK\3\4 and then something else"))).entries == 1


# Names and kinds

BAD_NAMES = [
    "/etc/passwd",
    "../x",
    "a/../../x",
    "a/..",
    "..",
    ".",
    "./a",
    "a//b",
    "a\\..\\b",
    "\\\\host\\share",
    "C:/x",
    "c:x",
    "a\nb",
    "a\x7f",
    "",
    "/",
    "a/" * MAX_DEPTH + "b",
    "a" * 1025,
]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_name_that_leads_elsewhere(tmp_path: Path, name: str) -> None:
    """S5, S6, and what makes extraction absurd."""
    path = raw_zip(tmp_path / "a.zip", raw_member(b"good", b"x"), raw_member(name.encode(), b"x"))
    message = refused(path)
    assert "the member" in message
    assert "'good'" not in message


def test_nul_does_not_hide_the_end_of_a_name(tmp_path: Path) -> None:
    """Python cuts it off; not everybody does."""
    path = raw_zip(tmp_path / "a.zip", raw_member(b"good.py\0/../../x", b"x"))
    assert "control character" in refused(path)


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR, stat.S_IFBLK, stat.S_IFSOCK])
def test_links_and_devices(tmp_path: Path, kind: int) -> None:
    path = raw_zip(tmp_path / "a.zip", raw_member(b"link", b"/etc/passwd", mode=kind | 0o777))
    assert "'link' is " in refused(path)


def test_link_that_a_usual_program_packed(tmp_path: Path) -> None:
    info = zipfile.ZipInfo("link")
    info.create_system = 3
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    assert "'link' is a symbolic link" in refused(zipped(tmp_path / "a.zip", (info, b"../../x")))


def test_all_that_is_wrong_is_said_at_once_up_to_a_limit(tmp_path: Path) -> None:
    names = [b"../a", b"/b", b"c", b"c"]
    message = refused(raw_zip(tmp_path / "a.zip", *[raw_member(n, b"x") for n in names]))
    assert len(message.splitlines()) == 3
    assert "two members 'c'" in message
    many = raw_zip(tmp_path / "b.zip", *[raw_member(b"../%d" % n, b"x") for n in range(200)])
    assert len(refused(many).splitlines()) == 20


# What can be understood in two ways


def test_member_with_two_names(tmp_path: Path) -> None:
    path = raw_zip(tmp_path / "a.zip", raw_member(b"good.py", b"x", other_name=1))
    assert "name in the directory differs" in refused(path)
    extra = struct.pack("<2HBL", 0x7075, 5 + 7, 1, zlib.crc32(b"good.py")) + b"../evil"
    info = zipfile.ZipInfo("good.py")
    info.extra = extra
    assert "with two names" in refused(zipped(tmp_path / "b.zip", (info, b"x")))
    info.extra = extra.replace(b"../evil", b"good.py")
    assert check(zipped(tmp_path / "c.zip", (info, b"x"))).entries == 1


def test_encrypted_and_oddly_packed_members(tmp_path: Path) -> None:
    assert "encrypted member ('x')" in refused(raw_zip(tmp_path / "a.zip", raw_member(b"x", b"x", flags=1)))
    for method in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        path = zipped(tmp_path / "b.zip", ("x", b"x" * 100), method=method)
        assert "use 'deflate'" in refused(path)


def test_data_behind_the_data(tmp_path: Path) -> None:
    deflater = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = deflater.compress(b"content") + deflater.flush()
    for junk in (b"!", b"!" * 200_000):
        path = raw_zip(tmp_path / "a.zip", raw_member(b"x", b"content", packed=packed + junk))
        assert "extra data after" in refused(path)
    assert "it was cut off" in refused(raw_zip(tmp_path / "b.zip", raw_member(b"x", b"content", packed=packed[:-1])))
    assert "is damaged" in refused(raw_zip(tmp_path / "c.zip", raw_member(b"x", b"content", packed=b"\xff" * 20)))


def test_content_that_has_another_checksum(tmp_path: Path) -> None:
    raw = zipped(tmp_path / "a.zip", ("x", b"content"), method=zipfile.ZIP_STORED).read_bytes()
    (tmp_path / "a.zip").write_bytes(raw.replace(b"content", b"cOntent"))
    assert "'x': the checksum does not match" in refused(tmp_path / "a.zip")


def test_something_behind_the_archive(tmp_path: Path) -> None:
    path = raw_zip(tmp_path / "a.zip", raw_member(b"x", b"x"), tail=b"junk")
    assert "extra data after its end" in refused(path)
    inner = raw_zip(tmp_path / "inner.zip", raw_member(b"../evil", b"x")).read_bytes()
    hidden = raw_zip(tmp_path / "b.zip", raw_member(b"x", b"x"), comment=inner)
    assert "'../evil'" in refused(hidden)  # as Python sees it: the last archive counts


@pytest.mark.parametrize(
    "content", [b"", b"PK", b"PK\5\6", b"not a zip at all", b"PK\3\4" + bytes(100), bytes(100_000)]
)
def test_what_is_no_archive(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.zip").write_bytes(content)
    assert "is not a zip, or was cut off" in refused(tmp_path / "a.zip")


def test_archive_that_was_damaged_anywhere_never_breaks_the_check(tmp_path: Path) -> None:
    """F21: each byte flipped, each length cut: fit or refused, and nothing else."""
    good = zipped(tmp_path / "good.zip", ("pkg/a.py", b"a = 1\n" * 20), ("b", os.urandom(40))).read_bytes()
    path = tmp_path / "a.zip"
    outcomes: set[str] = set()
    for at in range(len(good)):
        for changed in (good[:at], good[:at] + bytes([good[at] ^ 0xFF]) + good[at + 1 :]):
            path.write_bytes(changed)
            try:
                check(path)
                outcomes.add("fit")
            except InvalidRequestError:
                outcomes.add("refused")
    assert outcomes == {"fit", "refused"}  # not all bytes say something that matters
    assert check(tmp_path / "good.zip").entries == 2
