"""Keys and references: what is not one is refused before it comes near a path."""

from __future__ import annotations

import pytest
from tests.blob.blob_tools import key_of

from firesteel.blob.keys import BlobKey, BlobRef, is_blob_name, is_blob_ref, parse_blob_key

KEY = key_of(b"content")


def test_reference_reads_back_as_it_was_written() -> None:
    ref = BlobRef(KEY, "my-lib_1.0+cpu.py")
    assert str(ref) == f"blob:{KEY}/my-lib_1.0+cpu.py"
    assert BlobRef.parse(str(ref)) == ref


@pytest.mark.parametrize(
    "text", ["", KEY[:-1], KEY + "0", KEY.upper(), f" {KEY}", f"{KEY}\n", "g" * 64, "../" + KEY[3:], "٣" * 64]
)
def test_anything_else_than_64_lower_case_hex_digits_is_no_key(text: str) -> None:
    """S4, S6: no case variants, no line ends, no digits of other scripts, no paths."""
    with pytest.raises(ValueError, match="SHA-256"):
        parse_blob_key(text)


BAD_NAMES = [
    "",
    ".",
    "..",
    "../x",
    "a/../b",
    "a/b",
    "/etc/passwd",
    "a\\b",
    "..\\b",
    "C:x",
    "a..b",
    ".hidden",
    "-rf",
    "a\0b",
    "a\nb",
    "a\n",
    "%2e%2e%2fx",
    "a b",
    "ümlaut.py",
    "a.",
    "a" * 129,
]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_name_that_could_lead_elsewhere_is_refused(name: str) -> None:
    """S4, S5, S6: separators of any system, encodings of them, hidden files, options, NUL, trailing dots."""
    assert not is_blob_name(name)
    with pytest.raises(ValueError, match="is not a valid file name"):
        BlobRef(KEY, name)
    with pytest.raises(ValueError, match="is not a valid file name"):
        BlobRef.parse(f"blob:{KEY}/{name}")


@pytest.mark.parametrize("name", ["a", "job.py", "numpy-2.0-cp311.whl", "a" * 128, "0", "a.tar.gz", "a-", "a+b_c"])
def test_usual_names_are_names(name: str) -> None:
    assert BlobRef(KEY, name).name == name


def test_reference_with_a_bad_key_is_not_made() -> None:
    with pytest.raises(ValueError, match="SHA-256"):
        BlobRef(BlobKey("../../etc/passwd"), "x")


@pytest.mark.parametrize("text", ["blob:", f"blob:{KEY}", "blob:../../etc/passwd", f"BLOB:{KEY}/x", f"blob://{KEY}/x"])
def test_broken_reference_is_recognised_as_one_and_refused(text: str) -> None:
    """S6: it must not be taken for a path on the server."""
    assert is_blob_ref(text)
    with pytest.raises(ValueError, match=r"blob:<sha256>/<name>|SHA-256"):
        BlobRef.parse(text)


@pytest.mark.parametrize("text", ["", "job.py", "/data/job.py", "s3://bucket/blob:x", "blobs/job.py"])
def test_paths_are_no_references(text: str) -> None:
    assert not is_blob_ref(text)
