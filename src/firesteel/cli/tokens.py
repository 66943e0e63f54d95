"""`firesteel cluster token` manages the tokens of clients on other machines."""

from __future__ import annotations

import dataclasses
import datetime as dt
from typing import Any

import click
from rich.text import Text

from firesteel.cli import exit_codes
from firesteel.cli.command_line import json_option
from firesteel.cli.options import Given, configured
from firesteel.cli.tables import console, echo_json, moment, new_table, plain
from firesteel.config.sections import GRANTED_ROLES, Authentication, Role
from firesteel.durations import seconds
from firesteel.errors import FiresteelError
from firesteel.rest.security.principals import EVERYBODY
from firesteel.rest.security.tokens import TokenFile, TokenInfo


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def token() -> None:
    """Manage bearer tokens. Their hashes are in `security.rest.tokens-file`; nodes see changes in a second or two."""


def _lifetime(_context: click.Context, _parameter: click.Parameter, value: str | None) -> dt.timedelta | None:
    if value is None:
        return None
    try:
        lifetime = dt.timedelta(seconds=seconds(value))
        _ = dt.datetime.now(dt.UTC) + lifetime
    except (ValueError, OverflowError):
        raise click.BadParameter(f"'{value}' is not a duration; write for example 12 h or 30 d") from None
    return lifetime


@token.command()
@click.argument("name")
@click.option(
    "--role",
    type=click.Choice([r.value for r in GRANTED_ROLES]),
    default=Role.OPERATOR.value,
    help=(
        "scraper reads /metrics and nothing else, viewer sees jobs, operator (the default) also submits and ends them, "
        "admin may do everything to all jobs."
    ),
)
@click.option(
    "--owner",
    help="The owner whose jobs the token is for; by default NAME, and for an admin '*', which is every owner.",
)
@click.option(
    "--expires", "lifetime", metavar="DURATION", callback=_lifetime, help="How long the token is valid, such as 30 d."
)
@json_option
@configured
def create(given: Given, name: str, role: str, owner: str | None, lifetime: dt.timedelta | None, as_json: bool) -> int:
    """Create a token called NAME, and print it. It is shown only this once, because only its hash is kept."""
    file = _file(given)
    expires = None if lifetime is None else dt.datetime.now(dt.UTC) + lifetime
    owner = owner or (EVERYBODY if role == Role.ADMIN.value else name)
    namesakes = sum(t.name == name for t in file.list())
    try:
        made = file.create(name, Role(role), owner, expires)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    if namesakes:
        others = "another token is" if namesakes == 1 else f"{namesakes} other tokens are"
        stays = "it stays valid" if namesakes == 1 else "they stay valid"
        click.echo(f"note: {others} called '{name}' too; {stays} until `firesteel cluster token revoke`.", err=True)
    if as_json:
        [info] = [t for t in file.list() if made.startswith(f"fst_{t.id}_")]
        echo_json({**_json(info), "token": made})
    else:
        click.echo(made)
    return exit_codes.OK


@token.command("list")
@json_option
@configured
def list_tokens(given: Given, as_json: bool) -> int:
    """List tokens in the order of their creation."""
    found = _file(given).list()
    if as_json:
        echo_json([_json(t) for t in found])
    elif found:
        table = new_table("id", "name", "role", "owner", "created", "expires", whole=["id", "role"])
        for t in found:
            table.add_row(t.id, plain(t.name), t.role.value, plain(t.owner), moment(t.created.timestamp()), _expiry(t))
        console().print(table)
    else:
        click.echo("No tokens. `firesteel cluster token create NAME` creates one.")
    return exit_codes.OK


@token.command()
@click.argument("token_id", metavar="ID")
@json_option
@configured
def revoke(given: Given, token_id: str, as_json: bool) -> int:
    """Revoke the token with this ID, or the only one whose id begins with it."""
    file = _file(given)
    found = [t for t in file.list() if token_id and t.id.startswith(token_id.lower())]
    if len(found) > 1:
        raise FiresteelError(f"{len(found)} token ids begin with '{token_id}'; give more digits")
    if not found or not file.revoke(found[0].id):
        raise FiresteelError(f"no such token: {token_id}; `firesteel cluster token list` lists them")
    if as_json:
        echo_json({"revoked": found[0].id})
    else:
        click.echo(f"Token {found[0].id} ({found[0].name}) is revoked.")
    return exit_codes.OK


def _file(given: Given) -> TokenFile:
    security = given.configuration.security
    if Authentication.TOKEN not in security.authentication:
        shown = ", ".join(a.value for a in security.authentication)
        click.echo(f"note: security.rest.authentication is {shown}, so no token is required.", err=True)
    return TokenFile(security.tokens_file)


def _json(info: TokenInfo) -> dict[str, Any]:
    return {
        **dataclasses.asdict(info),
        "created": info.created.isoformat(),
        "expires": info.expires.isoformat() if info.expires else None,
    }


def _expiry(info: TokenInfo) -> Text:
    if info.expires is None:
        return Text("never")
    over = info.expires <= dt.datetime.now(dt.UTC)
    return Text(moment(info.expires.timestamp()) + (", it is over" if over else ""), style="red" if over else "")
