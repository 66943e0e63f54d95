"""Thread dumps. They are for admins, and off unless `security.rest.debug-endpoints` is on or Flink's dashboard, which has a
page for them, is served (S33)."""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback
from collections.abc import Iterable, Mapping
from types import FrameType
from typing import Any

from firesteel.config import Configuration
from firesteel.config.sections import Role
from firesteel.errors import ForbiddenError
from firesteel.rest.answers import Json
from firesteel.rest.security.principals import Principal, require

MAX_TASKS = 1000
MAX_FRAMES = 50


def require_debugging(configuration: Configuration, principal: Principal) -> None:
    require(principal, Role.ADMIN)
    if not configuration.security.debug and configuration.web.flink_dashboard_dir is None:
        raise ForbiddenError(
            "thread dumps are disabled; set security.rest.debug-endpoints to true and restart the node"
        )


def dump_node() -> Json:
    """The threads and the tasks of this process. Called on its event loop."""
    frames = sys._current_frames()
    threads = [_thread(t.name, t.ident or 0, frames.get(t.ident or 0)) for t in threading.enumerate()]
    return {"threadInfos": [*threads, *_tasks(asyncio.all_tasks())]}


def dump_engine(threads: Iterable[Mapping[str, Any]]) -> Json:
    """The threads of an engine, from Spark's monitoring API."""
    return {"threadInfos": [_java_thread(t) for t in threads]}


def _thread(name: str, number: int, frame: FrameType | None) -> Json:
    stack = [] if frame is None else traceback.extract_stack(frame, MAX_FRAMES)
    return _message(name, f'"{name}" Id={number}', stack)


def _tasks(tasks: Iterable[asyncio.Task[Any]]) -> list[Json]:
    infos = []
    for task in sorted(tasks, key=lambda t: t.get_name())[:MAX_TASKS]:
        frames = task.get_stack(limit=MAX_FRAMES)
        stack = [s for frame in frames for s in traceback.extract_stack(frame, 1)]
        infos.append(_message(f"task {task.get_name()}", f'"{task.get_name()}" TASK', stack))
    return infos


def _message(name: str, title: str, stack: Iterable[traceback.FrameSummary]) -> Json:
    # Only names of functions and files: values of variables may be secrets.
    lines = [f"\tat {s.name} ({s.filename.rpartition('/')[2]}:{s.lineno})" for s in reversed(list(stack))]
    return {"threadName": name, "stringifiedThreadInfo": "\n".join([title, *lines, "", ""])}


def _java_thread(thread: Mapping[str, Any]) -> Json:
    name = str(thread.get("threadName", ""))
    stack = thread.get("stackTrace")
    elements = stack.get("elems", ()) if isinstance(stack, Mapping) else ()
    lines = [f"\tat {str(line).strip()}" for line in elements]
    title = f'"{name}" Id={thread.get("threadId", 0)} {thread.get("threadState", "")}'.rstrip()
    return {"threadName": name, "stringifiedThreadInfo": "\n".join([title, *lines, "", ""])}
