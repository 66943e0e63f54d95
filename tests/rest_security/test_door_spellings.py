"""What a path could mean to Spark, however it is written (S39)."""

from __future__ import annotations

import pytest

from firesteel.rest.security.spellings import may_reach

ROOT = "/data/firesteel"


@pytest.mark.parametrize(
    "path",
    [
        "/data/firesteel",
        "/data/firesteel/clusters/default/rest.json",
        "/data",
        "/",
        "//data/firesteel/x",
        "file:/data/firesteel",
        "FILE:/data/firesteel",
        "file:///data/firesteel/x",
        "file://localhost/data/firesteel/x",
        "file:////data//firesteel",
        "/data/./other/../firesteel",
        "/../data/firesteel",
        "/data/fire*/x",
        "/d?ta/firesteel",
        "/*/*/clusters",
        "/dat[a-z]/firesteel",
        "/dat[^b]/firesteel",
        "/{tmp,data}/firesteel/x",
        "{/tmp,/data/firesteel}/x",
        "/{a,{b,data}}/firesteel",
        "/data/f\\iresteel",
        "/data/%66iresteel",
        " /data/firesteel ",
        "/{a,b}" * 12,
    ],
)
def test_no_spelling_hides_a_place(path: str) -> None:
    assert may_reach(path, ROOT)


@pytest.mark.parametrize(
    "path",
    [
        "/data/other",
        "/data/firesteel2",
        "/database",
        "/data/{in,out}/x",
        "s3a://data/firesteel",
        "hdfs://host/data/firesteel",
        "/in/*.csv",
        "/data/firesteel/../x",
    ],
)
def test_other_places_are_free(path: str) -> None:
    assert not may_reach(path, ROOT)
