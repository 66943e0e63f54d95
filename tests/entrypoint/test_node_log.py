"""The log of a node in the background turns over, and takes along what is printed."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

from firesteel.node_log import NodeLog

PROGRAM = """
import logging, os, sys
from pathlib import Path
from firesteel.node_log import NodeLog

handler = NodeLog(Path(sys.argv[1]), max_bytes=4000, kept=2)
logging.basicConfig(level=logging.INFO, handlers=[handler])
for number in range(400):
    logging.info("line %d %s", number, "x" * 40)
os.write(2, b"the interpreter has the last word\\n")
"""


def record(text: str) -> logging.LogRecord:
    return logging.LogRecord("test", logging.INFO, __file__, 1, text, None, None)


def test_a_log_that_is_full_turns_over_under_those_who_print_too(tmp_path: Path) -> None:
    log = tmp_path / "node.log"
    with log.open("ab") as output:
        subprocess.run([sys.executable, "-c", PROGRAM, str(log)], stdout=output, stderr=output, check=True, timeout=60)
    files = sorted(p.name for p in tmp_path.iterdir() if not p.name.startswith("."))
    assert files == ["node.log", "node.log.1", "node.log.2"]
    assert all((tmp_path / name).stat().st_size <= 4100 for name in files)
    assert log.read_text().endswith("the interpreter has the last word\n")


def test_nodes_that_share_a_log_follow_each_other(tmp_path: Path) -> None:
    log = tmp_path / "node.log"
    first, second = NodeLog(log, max_bytes=1000, kept=1), NodeLog(log, max_bytes=1000, kept=1)
    try:
        for number in range(60):
            first.handle(record(f"first {number} {'x' * 30}"))
            second.handle(record(f"second {number} {'x' * 30}"))
            assert second.stream is not None
            assert os.fstat(second.stream.fileno()).st_ino == log.stat().st_ino
        last = log.read_text()
    finally:
        first.close()
        second.close()
    assert "first 59" in last
    assert "second 59" in last
    assert sorted(p.name for p in tmp_path.iterdir() if not p.name.startswith(".")) == ["node.log", "node.log.1"]
