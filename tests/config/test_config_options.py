"""Declaring options: what a section makes of its attributes, and keys that were renamed."""

from __future__ import annotations

import dataclasses
from enum import Enum
from pathlib import Path
from typing import get_type_hints

import pytest

from firesteel.config import Configuration, EngineOptions
from firesteel.config.option import Section, option
from firesteel.config.reference import render
from firesteel.config.resolver import Resolution, resolve
from firesteel.config.sections import OPTIONS, SECTIONS
from firesteel.config.sources import Entry, SettingOrigin, given_twice
from firesteel.config.values import PathBase


class Colour(Enum):
    RED = "red"
    DARK_BLUE = "dark-blue"


class PaintOptions(Section, prefix="paint"):
    """Paint."""

    base_colour: Colour = option(default=Colour.RED, description="The first coat.", since="0.1")
    layers: int = option(default=2, description="Coats.", since="0.2", deprecated=("paint.coats", "brush.coats"))
    thickness: float | None = option(default=None, description="In millimetres.", since="0.1")
    code: str = option(default="c", key="secret.code", description="Code.", since="0.1", secret=True)
    total: int = option(
        computed=lambda environ, values: values["paint.layers"] + len(environ),
        default_text="layers and more",
        description="All coats.",
        since="0.1",
    )


CWD = Path("/cwd")


def from_file(key: str, text: str, line: int = 1) -> Entry:
    return Entry(key, text, SettingOrigin("file", CWD, file="f.yaml", line=line))


def paint(*entries: Entry) -> Resolution:
    return resolve(PaintOptions.OPTIONS, entries, environ={"A": "1"}, home=Path("/home/me"))


def test_keys_come_from_prefix_and_attribute_or_are_given() -> None:
    assert [o.key for o in PaintOptions.OPTIONS] == [
        "paint.base-colour",
        "paint.layers",
        "paint.thickness",
        "paint.secret.code",
        "paint.total",
    ]
    assert PaintOptions.OPTIONS[3].variable == "FIRESTEEL_PAINT_SECRET_CODE"


def test_values_are_read_by_their_annotation() -> None:
    out = paint(
        from_file("paint.base-colour", "Dark-Blue"),
        from_file("paint.layers", "-3"),
        from_file("paint.thickness", "0.5"),
    )
    section = PaintOptions.of(out.values)
    assert section == PaintOptions(base_colour=Colour.DARK_BLUE, layers=-3, thickness=0.5, total=-2)
    assert out.problems == []


def test_a_section_is_frozen_and_hides_secrets_in_its_repr() -> None:
    section = PaintOptions(total=1, code="hidden")
    with pytest.raises(dataclasses.FrozenInstanceError):
        section.layers = 1  # type: ignore[misc]
    assert "hidden" not in repr(section)
    assert "layers=2" in repr(section)


def test_sections_can_be_made_in_code_with_their_defaults() -> None:
    assert EngineOptions(master="local[2]").start_timeout == 90.0


def test_a_bad_secret_is_not_repeated() -> None:
    class VaultOptions(Section, prefix="vault"):
        """Vault."""

        pin: int = option(default=1, description="Pin.", since="0.1", secret=True)

    out = resolve(VaultOptions.OPTIONS, [from_file("vault.pin", "12x4")], environ={}, home=CWD)
    assert [str(p) for p in out.problems] == [
        "f.yaml:1: field 'vault.pin': ****** is not a whole number — write a whole number"
    ]


def test_a_deprecated_key_works_and_is_reported() -> None:
    out = paint(from_file("brush.coats", "5", line=4))
    assert out.values["paint.layers"] == 5
    assert str(out.origins["paint.layers"]) == "file f.yaml:4"
    assert [str(p) for p in out.deprecations] == [
        "f.yaml:4: brush.coats is now called paint.layers — write paint.layers"
    ]
    by_variable = paint(Entry("paint.coats", "1", SettingOrigin("environment", CWD, variable="FIRESTEEL_PAINT_COATS")))
    assert [str(p) for p in by_variable.deprecations] == [
        "FIRESTEEL_PAINT_COATS is now called FIRESTEEL_PAINT_LAYERS — write FIRESTEEL_PAINT_LAYERS"
    ]


def test_old_and_new_key_in_one_source_are_one_key_given_twice() -> None:
    new, old = from_file("paint.layers", "1", line=1), from_file("paint.coats", "2", line=2)
    assert paint(new, old).problems == [given_twice("paint.layers", new.origin, old.origin)]
    stronger = Entry("paint.layers", "3", SettingOrigin("-D", CWD))
    assert paint(old, stronger).problems == []
    assert paint(old, stronger).values["paint.layers"] == 3


def test_a_suggestion_is_never_a_deprecated_key() -> None:
    [problem] = paint(from_file("paint.coat", "1")).problems
    assert "coats" not in str(problem)


def test_the_reference_tells_old_names_and_secrets() -> None:
    page = render([PaintOptions])
    assert "| `paint.layers` | integer | `2` | Coats. Formerly `paint.coats`, `brush.coats`. | 0.2 |" in page
    assert "| `paint.secret.code` | string | `c` | Code. Masked wherever it is shown. | 0.1 |" in page
    assert r"| `paint.base-colour` | `red` \| `dark-blue` | `red` | The first coat. | 0.1 |" in page
    assert "| `paint.total` | integer | layers and more | All coats. | 0.1 |" in page


def test_an_attribute_of_no_known_kind_fails_where_it_is_declared() -> None:
    with pytest.raises(TypeError, match="broken option 'many': no kind of value"):

        class Broken(Section, prefix="broken"):
            """Broken."""

            many: frozenset[int] = option(default=frozenset(), description="Many.", since="0.1")


def test_every_section_is_an_attribute_of_the_configuration_named_as_its_prefix() -> None:
    """`rows` finds a section by the last part of its prefix."""
    hints = get_type_hints(Configuration)
    typed = {name: hint for name, hint in hints.items() if isinstance(hint, type) and issubclass(hint, Section)}
    assert typed == {section.PREFIX.rpartition(".")[2].replace("-", "_"): section for section in SECTIONS}


def test_every_default_is_a_value_that_could_be_written() -> None:
    place = PathBase(CWD, CWD)
    for o in OPTIONS:
        if o.computed is None and o.default not in (None, ()):
            assert o.kind.parse(o.kind.show(o.default), place) == o.default, o.key
        if o.computed is None and o.default is None:
            assert o.optional, o.key


def test_every_description_is_one_sentence() -> None:
    for o in OPTIONS:
        assert o.description[0].isupper() or o.description[0] == "`", o.key
        assert o.description.endswith("."), o.key
        assert ". " not in o.description, o.key
        assert "|" not in o.description + o.default_text, f"{o.key}: would break the table"
