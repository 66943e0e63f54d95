"""The control plane's steps on the files of an attempt. See `claim` for what they exclude."""

from __future__ import annotations

from collections.abc import Callable

from firesteel.attempts.attempt import AttemptDirectory, AttemptSpec
from firesteel.attempts.claim import claimed
from firesteel.errors import FencingError, FiresteelError
from firesteel.fs.files import private_dir


def write_intent(directory: AttemptDirectory, spec: AttemptSpec) -> bool:
    """Write down what is about to be started. False when another process was faster, or the attempt is over."""
    private_dir(directory.root)
    with claimed(directory.root) as mine:
        if not mine or directory.driver.exists() or is_over(directory):
            return False
        directory.prepare(spec)
        return True


def is_over(directory: AttemptDirectory) -> bool:
    """The attempt has a result, was called off, or its driver is gone."""
    if is_called_off(directory):
        return True
    driver = directory.read_driver()
    return driver is not None and not driver.alive


def is_called_off(directory: AttemptDirectory) -> bool:
    """Whether the attempt was called off, or has its result."""
    return directory.has_result or directory.cancel_request.exists()


def call_off(directory: AttemptDirectory, guard: Callable[[], None]) -> bool:
    """See to it that no driver begins this attempt from here on. False when it has its result already.

    The mark comes first, then the guard: a leader that was paused before the mark learns here that it may not act, and
    removes the mark; one that is paused after it has made visible what it was about to do.
    """
    if directory.has_result:
        guard()
        return False
    private_dir(directory.root)
    there = directory.cancel_request.exists()
    directory.cancel_request.touch(mode=0o600)
    try:
        guard()
    except FencingError:
        if not there:
            directory.cancel_request.unlink(missing_ok=True)
        raise
    return True


def spec_of(directory: AttemptDirectory) -> AttemptSpec:
    if not directory.spec.exists():
        raise FiresteelError(f"there is no attempt in {directory.root}, or it was removed")
    return directory.read_spec()
