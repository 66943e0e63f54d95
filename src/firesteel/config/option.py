"""Declarations of options, each made once.

    class EngineOptions(Section, prefix="engine"):
        start_timeout: Duration = option(default=90.0, description="How long ...", since="0.1")

declares the key `engine.start-timeout`. The same declaration types the attribute for mypy, reads and checks the value,
masks secrets and writes the reference page. Instances of a section are frozen dataclasses.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import (
    Annotated,
    Any,
    ClassVar,
    Self,
    TypeVar,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
    overload,
)

from firesteel.config.values import ValueKind, kind_of

T = TypeVar("T")

Computed = Callable[[Mapping[str, str], Mapping[str, Any]], T]
"""Computes a default from the environment and the values of the options that are declared earlier."""

MASK = "******"
ENVIRONMENT_PREFIX = "FIRESTEEL_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One declared option."""

    key: str
    attribute: str
    kind: ValueKind
    optional: bool
    """Whether None is a value of it; empty text means None."""
    default: Any
    computed: Computed[Any] | None
    default_text: str
    """The default as the reference shows it."""
    description: str
    since: str
    secret: bool
    deprecated: tuple[str, ...]
    """Full keys under which this option can still be set."""

    @property
    def variable(self) -> str:
        return variable_of(self.key)

    def default_value(self, environ: Mapping[str, str], values: Mapping[str, Any]) -> Any:
        return self.computed(environ, values) if self.computed else self.default

    def show(self, value: Any) -> str:
        """`value` as a user would write it; a secret is masked."""
        if value is None:
            return f"({self.default_text.replace('`', '')})"
        return MASK if self.secret else self.kind.show(value)


def variable_of(key: str) -> str:
    """The environment variable that sets `key`: `FIRESTEEL_ENGINE_MASTER` for `engine.master`."""
    return ENVIRONMENT_PREFIX + key.upper().replace(".", "_").replace("-", "_")


@overload
def option(
    *,
    default: T,
    description: str,
    since: str,
    default_text: str | None = None,
    key: str | None = None,
    secret: bool = False,
    deprecated: tuple[str, ...] = (),
) -> T: ...


@overload
def option(
    *,
    computed: Computed[T],
    description: str,
    since: str,
    default_text: str,
    key: str | None = None,
    secret: bool = False,
    deprecated: tuple[str, ...] = (),
) -> T: ...


def option(*, default: Any = dataclasses.MISSING, secret: bool = False, **declared: Any) -> Any:
    """Declares an option as an attribute of a Section.

    Args:
        default: The value when nothing sets it.
        computed: In place of `default`, one that depends on the environment or on options declared earlier.
        description: One sentence for the reference.
        since: The version that introduced it.
        default_text: The default in the reference, where its value would not explain it.
        key: The key after the section's prefix; by default the attribute's name with dashes.
        secret: The value is masked wherever it is shown.
        deprecated: Full keys that still set this option.
    """
    # The repr of a section ends up in logs.
    return dataclasses.field(default=default, repr=not secret, metadata={"secret": secret, **declared})


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(option,))
class Section:
    """Base of all sections: each attribute of a subclass is an option under the section's prefix."""

    PREFIX: ClassVar[str]
    OPTIONS: ClassVar[tuple[Option, ...]]

    def __init_subclass__(cls, *, prefix: str) -> None:
        super().__init_subclass__()
        dataclass(frozen=True, kw_only=True)(cls)
        hints = get_type_hints(cls, include_extras=True)
        cls.PREFIX = prefix
        fields = dataclasses.fields(cls)  # type: ignore[arg-type]  # a dataclass since three lines above
        cls.OPTIONS = tuple(_declared(prefix, field, hints[field.name]) for field in fields)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """The section from values by key; `values` has every key of it, and may have others."""
        return cls(**{o.attribute: values[o.key] for o in cls.OPTIONS})


def _declared(prefix: str, field: dataclasses.Field[Any], annotation: object) -> Option:
    optional, annotation = _without_none(annotation)
    if get_origin(annotation) is Annotated:
        kind = next((m for m in get_args(annotation)[1:] if isinstance(m, ValueKind)), None)
    else:
        kind = kind_of(annotation)
    if kind is None:
        raise TypeError(f"{prefix} option '{field.name}': no kind of value for {annotation}; give one with Annotated")
    said = field.metadata
    default = None if field.default is dataclasses.MISSING else field.default
    return Option(
        key=f"{prefix}.{said.get('key') or field.name.replace('_', '-')}",
        attribute=field.name,
        kind=kind,
        optional=optional,
        default=default,
        computed=said.get("computed"),
        default_text=said.get("default_text") or ("none" if default is None else kind.show(default)),
        description=said["description"],
        since=said["since"],
        secret=said["secret"],
        deprecated=said.get("deprecated", ()),
    )


def _without_none(annotation: object) -> tuple[bool, object]:
    """(whether None is allowed, the rest of the annotation)."""
    if get_origin(annotation) in (Union, types.UnionType):
        rest = [a for a in get_args(annotation) if a is not types.NoneType]
        if len(rest) == 1:
            return True, rest[0]
    return False, annotation
