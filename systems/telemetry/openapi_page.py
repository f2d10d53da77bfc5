"""The OpenAPI document as one HTML page without external scripts, style sheets or fonts: nodes may be offline."""

from __future__ import annotations

import json
from html import escape
from typing import Any

_STYLE = "body { font: 15px/1.5 sans-serif; max-width: 60em; margin: 2em auto } pre { overflow-x: auto }"


def api_page(document: dict[str, Any]) -> str:
    """Return the page: the routes, then the documents they exchange."""
    info, schemas = document["info"], document.get("components", {}).get("schemas", {})
    routes = [
        _details(f"{verb.upper()} {path}", route.get("summary", ""), route)
        for path, verbs in document["paths"].items()
        for verb, route in verbs.items()
    ]
    documents = [_details(name, schema.get("description", ""), schema) for name, schema in sorted(schemas.items())]
    title = f"{escape(info['title'])}, version {escape(info['version'])}"
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title><style>{_STYLE}</style>"
        f"<h1>{title}</h1><p>{escape(info.get('summary', ''))} "
        "Machines read <a href=/openapi.json>openapi.json</a>.</p>"
        f"<h2>Routes</h2>{''.join(routes)}<h2>Documents</h2>{''.join(documents)}</html>"
    )


def _details(name: str, text: str, content: dict[str, Any]) -> str:
    said, shown = escape(text), escape(json.dumps(content, indent=1))
    return f"<details><summary><code>{escape(name)}</code> {said}</summary><pre>{shown}</pre></details>"
