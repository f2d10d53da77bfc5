"""The OpenAPI document as one HTML page without external scripts, style sheets or fonts: nodes may be offline."""

from __future__ import annotations

import json
from collections.abc import Iterator
from html import escape
from typing import Any

__all__ = ["api_page"]

_STYLE = """
body { font: 15px/1.5 sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em; }
details { border: 1px solid #ccc; border-radius: 4px; margin: .4em 0; padding: .4em .8em; }
code, pre { font-family: monospace; } pre { overflow-x: auto; background: #f6f6f6; padding: .6em; }
table { border-collapse: collapse; } td, th { text-align: left; padding: .1em 1em .1em 0; vertical-align: top; }
"""


def api_page(document: dict[str, Any]) -> str:
    """Return the page: routes by tag, then the documents they exchange."""
    info = document["info"]
    by_tag: dict[str, list[str]] = {}
    for path, verbs in document["paths"].items():
        for verb, route in verbs.items():
            by_tag.setdefault(route.get("tags", ["other"])[0], []).append(_route(verb.upper(), path, route))
    tags = "".join(f"<h2>{escape(tag)}</h2>{''.join(routes)}" for tag, routes in sorted(by_tag.items()))
    schemas = document.get("components", {}).get("schemas", {})
    documents = "".join(_schema(name, schema) for name, schema in sorted(schemas.items()))
    title = f"{escape(info['title'])}, version {escape(info['version'])}"
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title><style>{_STYLE}</style>"
        f"<h1>{title}</h1><p>{escape(info.get('summary', ''))} "
        f"Machines read <a href=/openapi.json>openapi.json</a>.</p>"
        f"{tags}<h2>Documents</h2>{documents}</html>"
    )


def _route(verb: str, path: str, route: dict[str, Any]) -> str:
    text = escape(route.get("description", ""))
    rows = "".join(_row(parameter) for parameter in route.get("parameters", []))
    body = next(iter(_references(route.get("requestBody", {}))), None)
    sends = f"<p>Sends {_link(body)}.</p>" if body else ""
    answers = "".join(
        f"<tr><td>{code}<td>{escape(answer.get('description', ''))} {' '.join(map(_link, _references(answer)))}"
        for code, answer in sorted(route["responses"].items())
    )
    return (
        f"<details><summary><code>{verb} {escape(path)}</code> {escape(route.get('summary', ''))}</summary>"
        f"<p>{text}</p><table>{rows}</table>{sends}<table>{answers}</table></details>"
    )


def _row(parameter: dict[str, Any]) -> str:
    said = parameter.get("description") or parameter["schema"].get("description", "")
    need = ", needed" if parameter.get("required") else ""
    return f"<tr><td><code>{escape(parameter['name'])}</code><td>{parameter['in']}{need}<td>{escape(said)}"


def _schema(name: str, schema: dict[str, Any]) -> str:
    text = escape(json.dumps(schema, indent=1))
    return f"<details id={escape(name)}><summary><code>{escape(name)}</code></summary><pre>{text}</pre></details>"


def _references(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        if "$ref" in part:
            yield part["$ref"].rpartition("/")[2]
        part = list(part.values())
    if isinstance(part, list):
        for item in part:
            yield from _references(item)


def _link(name: str) -> str:
    return f"<a href=#{escape(name)}>{escape(name)}</a>"
