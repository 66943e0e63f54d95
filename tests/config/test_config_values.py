"""Kinds of values: what they read, refuse and show."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from firesteel.config.values import LABELS, LOCATION, MASTER, PathBase, memory_bytes
from firesteel.durations import DURATION_PATTERN, seconds, show_seconds

PLACE = PathBase(base=Path("/base"), home=Path("/home/me"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("500ms", 0.5), ("1 millisecond", 0.001), ("10 s", 10), ("10sec", 10), ("1 second", 1), ("1.5 seconds", 1.5),
        ("2m", 120), ("2 min", 120), ("1 minute", 60), ("3 hours", 10800), ("1h", 3600), ("2 d", 172800), (" 0 s ", 0),
    ],
)  # fmt: skip
def test_durations_are_read(text: str, expected: float) -> None:
    assert seconds(text) == expected


@pytest.mark.parametrize("text", ["10", "s", "1 s 2 ms", "-1 s", "1e3 s", "inf s", "1,5 s", "10 S", "1 month", "1 mi"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=text):
        seconds(text)


@pytest.mark.parametrize(
    ("value", "shown"),
    [(90.0, "90 s"), (120.0, "2 min"), (0.5, "500 ms"), (1.5, "1500 ms"), (0.0015, "1.5 ms"), (3600.0, "1 h"),
     (172800.0, "2 d"), (0.0, "0 s"), (0.3, "300 ms")],
)  # fmt: skip
def test_durations_are_shown_so_that_they_can_be_read_back(value: float, shown: str) -> None:
    assert show_seconds(value) == shown
    assert seconds(shown) == value


def test_memory_sizes_are_read() -> None:
    assert memory_bytes("1k") == 1024
    assert memory_bytes("512m") == 512 * 2**20
    assert memory_bytes("2 GB") == 2 * 2**30
    for text in ("1", "g", "1.5g", "-1g", "1gib", "1p"):
        with pytest.raises(ValueError, match=text):
            memory_bytes(text)


@pytest.mark.parametrize(
    "text",
    ["local[*]", "local[1]", "local[16]", "spark://host:7077", "spark://a:7077,b.c-d:7078", "sc://127.0.0.1:15002",
     "sc://[::1]:15002"],
)  # fmt: skip
def test_masters_are_read(text: str) -> None:
    assert MASTER.parse(text, PLACE) == text


@pytest.mark.parametrize(
    "text",
    ["local", "local[0]", "local[]", "local[-1]", "local[2,3]", "yarn", "k8s://host:1", "spark://", "spark://host",
     "sc://host", "sc://host:0", "sc://host:65536", "sc://host:1/;token=t", "sc://a:1,b:2", "spark://a:1,b:70000",
     "sc://ho st:1", "local[*] "],
)  # fmt: skip
def test_what_is_no_master_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        MASTER.parse(text, PLACE)


@pytest.mark.parametrize("text", ["zone=a,disk=ssd", " zone=a, disk=ssd ", "disk=ssd zone=a", "zone=a,,disk=ssd"])
def test_labels_are_read(text: str) -> None:
    labels = (("disk", "ssd"), ("zone", "a"))
    assert LABELS.parse(text, PLACE) == labels
    assert LABELS.parse(LABELS.show(labels), PLACE) == labels


@pytest.mark.parametrize(
    "text", ["zone", "zone=", "=a", "zone=a=b", "zone=a,zone=b", "zone=a;b", "-zone=a", f"z={'a' * 64}"]
)
def test_what_is_no_label_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        LABELS.parse(text, PLACE)


def test_locations_keep_urls_and_make_paths_absolute() -> None:
    for url in ("s3a://bucket/x", "hdfs://nn:8020/x", "file:/x", "abfss://c@a.dfs.core.windows.net/x"):
        assert LOCATION.parse(url, PLACE) == url
    assert LOCATION.parse("~/x", PLACE) == "/home/me/x"
    assert LOCATION.parse("x/y", PLACE) == "/base/x/y"
    assert LOCATION.parse("/x", PLACE) == "/x"


def test_a_tilde_is_home_only_where_a_shell_would_think_so() -> None:
    assert PLACE.path("~") == Path("/home/me")
    assert PLACE.path("~other/x") == Path("/base/~other/x")


@pytest.mark.parametrize("text", ["٣ s", "1e3 s", "5", "s", "5 s s", "-1 s", "1.s"])
def test_pipelines_and_options_refuse_the_same_durations(text: str) -> None:
    assert re.search(DURATION_PATTERN, text) is None
    with pytest.raises(ValueError, match=re.escape(text)):
        seconds(text)
