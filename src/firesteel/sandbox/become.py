"""Enters a sandbox and becomes another program: `python -I -S become.py '<sandbox as JSON>' program arguments...`

The process stays the same, so a pid that was recorded before is the pid of the program.
"""

from __future__ import annotations

import json
import os
import sys


def main(sandbox: str, *argv: str) -> None:
    # Without site-packages, which take longer than all else here; and without the caller's PYTHON* variables.
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    from firesteel.sandbox.landlock import enter
    from firesteel.sandbox.rules import Sandbox

    enter(Sandbox.from_json(json.loads(sandbox)))
    os.execv(argv[0], argv)  # noqa: S606


if __name__ == "__main__":
    main(*sys.argv[1:])
