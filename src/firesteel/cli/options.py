"""Options that several commands share, and the meaning of -D."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from firesteel.cli.tables import OUTPUT
from firesteel.config import Configuration, is_option, load_configuration
from firesteel.deployment.effective import EffectiveConfiguration
from firesteel.jobgraph.checks.settings import reserved


def configured(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `-D` and `--config`; it receives `given`, a Given."""

    @click.option("-D", "definitions", multiple=True, metavar="KEY=VALUE", help="Set an option or a pipeline variable.")
    @click.option(
        "--config", "config_file", type=click.Path(dir_okay=False, path_type=Path), help="Configuration file."
    )
    @functools.wraps(function)
    def wrapper(definitions: tuple[str, ...], config_file: Path | None, **rest: Any) -> Any:
        options, variables = split_definitions(definitions)
        configuration = load_configuration(file=config_file, overrides=options)
        for warning in configuration.deprecations:
            click.echo(f"warning: {warning}", err=True)
        given = Given(configuration, options, variables, config_file)
        return function(given=given, **rest)

    return wrapper


def _output(context: click.Context, _parameter: click.Parameter, value: str | None) -> None:
    context.meta[OUTPUT] = value


def _as_json(context: click.Context, _parameter: click.Parameter, value: bool) -> bool:
    return value or context.meta.get(OUTPUT) == "json"


def json_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `--json` and `--output`; it receives `as_json`."""
    function = click.option("--json", "as_json", is_flag=True, callback=_as_json, help="The same as --output json.")(
        function
    )
    return click.option(
        "--output",
        type=click.Choice(["wide", "json"]),
        callback=_output,
        expose_value=False,
        is_eager=True,
        help="wide prints whole lines even on a narrow terminal, json prints JSON.",
    )(function)


class Given(EffectiveConfiguration):
    """The configuration of a command, and the variables that it gives a pipeline."""

    def __init__(
        self,
        configuration: Configuration,
        overrides: Mapping[str, str],
        variables: Mapping[str, str],
        config_file: Path | None,
    ) -> None:
        super().__init__(configuration, overrides, config_file)
        self.variables = variables

    def _replaced(self, configuration: Configuration, overrides: Mapping[str, str]) -> Given:
        return Given(configuration, overrides, self.variables, self.config_file)


def spark_of_job(given: Given) -> tuple[dict[str, str], Given]:
    """Split what -D gave into the Spark settings of a job, and the rest, which is for the cluster.

    A setting of a session then costs nothing, and one that an engine is started with costs another engine, but no other
    node.
    """
    spark = {k: v for k, v in given.overrides.items() if k.startswith("spark.") and not reserved(k)}
    if not spark:
        return {}, given
    return spark, given.with_overrides({k: v for k, v in given.overrides.items() if k not in spark})


def split_definitions(definitions: tuple[str, ...]) -> tuple[dict[str, str], dict[str, str]]:
    """Tell the options in -D, whose names have dots, from the pipeline's variables, whose names never have."""
    options: dict[str, str] = {}
    variables: dict[str, str] = {}
    for text in definitions:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise click.BadParameter(f"'{text}' is not KEY=VALUE", param_hint="-D")
        target = options if is_option(key) or "." in key else variables
        target[key] = value
    return options, variables
