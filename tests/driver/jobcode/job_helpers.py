"""Imported by functions that run in Spark's Python workers."""


def twice(value: int) -> int:
    return 2 * value
