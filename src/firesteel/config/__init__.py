"""The configuration: options are declared once and read from a file, the environment and -D, with their origin."""

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
