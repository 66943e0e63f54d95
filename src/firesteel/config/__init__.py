"""Configuration: options declared once, read from a file, the environment and -D, each value with its origin."""

from firesteel.config.loader import Configuration, Row, is_option, known_keys, load_configuration
from firesteel.config.sections import (
    ClassArchive,
    DataOptions,
    DriverOptions,
    EngineOptions,
    JavaOptions,
    ParallelismOptions,
    StateOptions,
)

__all__ = [
    "ClassArchive",
    "Configuration",
    "DataOptions",
    "DriverOptions",
    "EngineOptions",
    "JavaOptions",
    "ParallelismOptions",
    "Row",
    "StateOptions",
    "is_option",
    "known_keys",
    "load_configuration",
]
