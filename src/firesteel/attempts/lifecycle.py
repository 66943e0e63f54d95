"""The steps of an attempt as its files show them, for those who look after it. See `claim` for what they exclude."""

from __future__ import annotations

from collections.abc import Callable

from firesteel.attempts.attempt import AttemptDirectory, AttemptSpec
from firesteel.attempts.claim import claimed
from firesteel.errors import FencingError, FiresteelError
from firesteel.fs.files import private_dir


def write_intent(directory: AttemptDirectory, spec: AttemptSpec) -> bool:
    """Write down what is about to be started. False when somebody was faster, or the attempt is over."""
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
    """Or has its result."""
    return directory.has_result or directory.cancel_request.exists()


def call_off(directory: AttemptDirectory, guard: Callable[[], None]) -> bool:
    """See to it that no driver begins this attempt from here on. False when it has its result already.

    The mark first, then the guard: who was stopped before the mark finds out here that it may not act, and takes the mark
    back; who is stopped after it has said for all to see what it was about to do.
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
        raise FiresteelError(f"there is no attempt in {directory.root}, or it was forgotten")
    return directory.read_spec()
