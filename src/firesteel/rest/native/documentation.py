"""`GET /docs`: the OpenAPI document as a page, without scripts and without resources from elsewhere (S15)."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

router = APIRouter(tags=["cluster"])

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem; color: #222; }
h2 { border-bottom: 1px solid #ccc; margin-top: 2.5rem; }
h3 { margin: 1.5rem 0 .25rem; font-size: 1rem; }
code { font: 14px ui-monospace, monospace; }
b { display: inline-block; min-width: 4.5rem; }
table { border-collapse: collapse; margin: .25rem 0; }
th, td { border: 1px solid #ddd; padding: .15rem .6rem; text-align: left; vertical-align: top; }
@media (prefers-color-scheme: dark) { body { background: #161616; color: #ddd; } th, td, h2 { border-color: #444; } }
"""
_STYLE_HASH = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
HEADERS = {
    "content-security-policy": (
        f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
}
_METHODS = ("get", "post", "put", "patch", "delete")


@router.get("/docs", response_class=HTMLResponse, include_in_schema=False)
async def docs(request: Request) -> Response:
    state = request.app.state
    if not hasattr(state, "docs_page"):
        state.docs_page = await asyncio.to_thread(lambda: render_page(request.app.openapi()))
    return HTMLResponse(state.docs_page, headers=HEADERS)


def render_page(document: Mapping[str, Any]) -> str:
    """The operations of an OpenAPI document by their tags, as HTML."""
    info = document["info"]
    title = f"{escape(info['title'])} {escape(info['version'])}"
    by_tag: dict[str, list[str]] = {}
    for path, methods in document["paths"].items():
        for method in _METHODS:
            if operation := methods.get(method):
                tag = str((operation.get("tags") or ["other"])[0])
                by_tag.setdefault(tag, []).append("".join(_operation(path, method, operation)))
    sections = "".join(f"<h2>{escape(tag)}</h2>\n{''.join(parts)}" for tag, parts in sorted(by_tag.items()))
    return (
        f'<!doctype html>\n<html lang="en">\n<head><meta charset="utf-8"><title>{title}</title>'
        f"<style>{STYLE}</style></head>\n<body>\n<h1>{title}</h1>\n"
        f"{_paragraphs(info.get('description', ''))}"
        '<p>For programs: <a href="/openapi.json">/openapi.json</a>.</p>\n'
        f"{sections}</body>\n</html>\n"
    )


def _operation(path: str, method: str, operation: Mapping[str, Any]) -> Iterator[str]:
    yield f"<h3><b>{method.upper()}</b><code>{escape(path)}</code></h3>\n"
    yield f"<p>{escape(str(operation.get('summary', '')))}</p>\n"
    yield _paragraphs(str(operation.get("description", "")))
    rows = [_row(p["name"], p["in"], p.get("required", False), p) for p in operation.get("parameters", ())]
    body = operation.get("requestBody")
    if body:
        rows.append(_row(", ".join(body["content"]), "body", body.get("required", False), body))
    if rows:
        yield "<table><tr><th>parameter</th><th>in</th><th>type</th><th>meaning</th></tr>\n"
        yield from rows
        yield "</table>\n"
    codes = ", ".join(escape(str(code)) for code in operation.get("responses", ()) if str(code) != "422")
    yield f"<p>Answers: {codes}</p>\n"


def _row(name: str, where: str, required: bool, described: Mapping[str, Any]) -> str:
    cells = (
        f"<code>{escape(name)}</code>{'' if required else ' (optional)'}",
        escape(where),
        escape(_type(described.get("schema", {}))),
        escape(str(described.get("description", ""))),
    )
    return f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>\n"


def _type(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return " | ".join(str(v) for v in schema["enum"])
    if "anyOf" in schema:
        return " | ".join(t for s in schema["anyOf"] if (t := _type(s)) and t != "null")
    kind = str(schema.get("type", ""))
    return f"{kind} of {_type(schema['items'])}" if kind == "array" and "items" in schema else kind


def _paragraphs(text: str) -> str:
    return "".join(f"<p>{escape(part.strip())}</p>\n" for part in text.split("\n\n") if part.strip())
