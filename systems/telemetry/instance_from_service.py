"""A load-partition instance from what the node information service has stored.

Uses the standard library only, so that a scheduler needs no extra packages. Stale or invalid values are left out; the
instance's ``comment`` names them and the reason.
"""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.parse
import urllib.request
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from flowlex.instances.input_errors import InstanceError, first_fault
from flowlex.instances.load import Block, Link, LoadNode, LoadPartitionInstance

#: The data names that are read from the service, and their meaning.
DATA_NAMES: dict[str, str] = {
    "items": "items that lie on the node: a number, or a list of {name, items, holders}",
    "cpu_cores": "configuration",
    "cpu_free": "idle fraction of the CPUs",
    "processing_speed": "items per second from the run history",
    "node_performance": "performance by whatever evaluation made it: a number, or {node: number} from one node",
    "access_cost": "seconds per item to other nodes: {target: seconds}, or {source: {target: seconds}} from one node",
}
#: Optional data name; a stale or invalid value does not exclude a node.
_PAIRWISE = "access_cost"
#: Most reasons that a comment lists; the others are counted.
_NAMED = 40
_MOST_BYTES = 64_000_000
_Part = TypeVar("_Part", LoadNode, Block, Link)


def from_telemetry(
    url: str,
    *,
    token: str | None = None,
    max_age_s: float = 60.0,
    names: Mapping[str, str] | None = None,
    timeout_s: float = 10.0,
    ca_file: Path | None = None,
) -> LoadPartitionInstance:
    """Read the latest values and return an instance of the nodes with fresh values.

    A block keeps its replicas on fresh nodes, even if a stale node reported it; blocks that no fresh node holds are
    left out. A pair of nodes without access cost gets the instance's constant cost.

    Parameters
    ----------
    url
        Address of the service, ``http://host:port``.
    token
        A reader's token; never sent on to another address.
    max_age_s
        A node with an older value is left out.
    names
        Other data names than those of `DATA_NAMES`: its key to the name in the service.
    ca_file
        CA certificates (PEM) for an ``https`` service; None: those of the system.

    Raises
    ------
    InstanceError
        The service does not answer or refuses, or no node is fresh.
    """
    named = {(names or {}).get(key, key): key for key in DATA_NAMES}
    values: dict[str, dict[str, Any]] = {}
    stale: dict[str, str] = {}
    for reading in _readings(url, list(named), max_age_s, _Connection(token, timeout_s, ca_file)):
        node, key = reading["node"], named[reading["name"]]
        if reading["stale"] and key == _PAIRWISE:
            continue
        values.setdefault(node, {})[key] = reading["value"]
        if reading["stale"]:
            stale.setdefault(node, f"{reading['name']} is {reading['age_s']:.0f} s old")
    live = _Live(values, stale)
    nodes = live.nodes()
    if not nodes:
        raise InstanceError(f"no node has fresh values; left out: {live.said() or 'none is known'}", path=url)
    blocks, links = live.blocks(nodes), live.links(nodes)
    comment = f"from {url}" + (f"; left out: {live.said()}" if live.left_out else "")
    try:
        return LoadPartitionInstance(
            name="live", comment=comment, nodes=tuple(nodes.values()), blocks=tuple(blocks), links=tuple(links)
        )
    except ValidationError as error:
        raise InstanceError(first_fault(error)[1], path=url) from error


class _Live:
    """The values of the nodes, and which of them are left out."""

    def __init__(self, values: Mapping[str, Mapping[str, Any]], stale: Mapping[str, str]) -> None:
        self._values = dict(sorted(values.items()))
        self.left_out: dict[str, str] = dict(stale)

    def said(self) -> str:
        """Describe what is left out, and why."""
        items = [f"{what} ({why})" for what, why in sorted(self.left_out.items())]
        more = f"; and {len(items) - _NAMED} more" if len(items) > _NAMED else ""
        return "; ".join(items[:_NAMED]) + more

    def nodes(self) -> dict[str, LoadNode]:
        """Return the nodes with fresh and valid values."""
        performance: dict[str, Any] = {}
        for node, found in self._values.items():
            value = found.get("node_performance")
            if value is not None and node not in self.left_out:
                performance |= value if isinstance(value, dict) else {node: value}
        nodes: dict[str, LoadNode] = {}
        for node, found in self._values.items():
            if node in self.left_out:
                continue
            speed = found.get("processing_speed")
            if node not in performance and not found.keys() & {"cpu_cores", "cpu_free", "processing_speed"}:
                if found.keys() & {"items"}:
                    self.left_out[node] = "its capacity is not reported"
                continue
            made = self._made(
                node,
                LoadNode,
                name=node,
                configuration=found.get("cpu_cores"),
                cpu_free=found.get("cpu_free"),
                performance=performance.get(node),
                history=() if speed is None else ({"items": speed, "seconds": 1.0},),
            )
            nodes |= {node: made} if made is not None else {}
        return nodes

    def blocks(self, nodes: Mapping[str, LoadNode]) -> list[Block]:
        """Return the blocks that a fresh node holds, each once even if several nodes report it."""
        kept: dict[str, Block] = {}
        for node, found in self._values.items():
            for block in self._told(node, found.get("items", 0)):
                holders = tuple(holder for holder in block.holders if holder in nodes)
                if not holders:
                    self.left_out[f"block {block.name}"] = f"no fresh node holds it: {', '.join(block.holders)[:80]}"
                    continue
                known = kept.get(block.name)
                if known is not None and known.items != block.items:
                    said = f"{node} says {block.items} items, another node {known.items}, which is kept"
                    self.left_out[f"a second block {block.name}"] = said
                    continue
                every = (*(known.holders if known else ()), *holders)
                kept[block.name] = Block(name=block.name, items=block.items, holders=tuple(dict.fromkeys(every)))
        return list(kept.values())

    def _told(self, node: str, value: Any) -> Iterator[Block]:
        if not isinstance(value, list):
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not number or not 0 <= value <= 10**12 or value != int(value):
                self.left_out[f"items of {node}"] = f"{str(value)[:40]!r} is neither a count nor a list"
            elif value:
                yield Block(name=f"{node} items", items=int(value), holders=(node,))
            return
        for i, entry in enumerate(value):
            fields = entry if isinstance(entry, dict) else {"name": entry}
            if (block := self._made(f"items[{i}] of {node}", Block, **fields)) is not None:
                yield block

    def _made(self, what: str, cls: type[_Part], /, **fields: Any) -> _Part | None:
        """Build a part of the instance; return None if the values are invalid."""
        try:
            return cls(**fields)
        except ValidationError as error:
            self.left_out[what] = ": ".join(filter(None, first_fault(error)))
            return None

    def links(self, nodes: Mapping[str, LoadNode]) -> list[Link]:
        """Return the known costs per item between fresh nodes."""
        links: dict[tuple[str, str], Link] = {}
        for node, found in self._values.items():
            table = found.get(_PAIRWISE)
            if table is None:
                continue
            nested = isinstance(table, dict) and any(isinstance(row, dict) for row in table.values())
            for source, row in (table if nested else {node: table}).items():
                if source in nodes and isinstance(row, dict):
                    for target in sorted(row.keys() & nodes.keys() - {source}):
                        ends = {"source": source, "target": target}
                        link = self._made(f"cost from {source} to {target}", Link, **ends, seconds_per_item=row[target])
                        links |= {} if link is None else {(source, target): link}
                elif not isinstance(row, dict):
                    self.left_out[f"access costs of {source}"] = "not a table of seconds per item"
        return list(links.values())


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Refuses redirects: the token is only for the given address."""

    def redirect_request(self, *arguments: Any, **more: Any) -> None:
        return None


class _Connection:
    """Queries the service without a proxy, so that an environment variable cannot send the token elsewhere."""

    def __init__(self, token: str | None, timeout_s: float, ca_file: Path | None) -> None:
        self._token = token
        self._timeout_s = timeout_s
        context = ssl.create_default_context(cafile=None if ca_file is None else str(ca_file))
        https = urllib.request.HTTPSHandler(context=context)
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect(), https)

    def fetch(self, url: str) -> Any:
        place = url.partition("/v1/")[0]
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {self._token}"} if self._token else {})
        try:
            with self._opener.open(request, timeout=self._timeout_s) as response:
                text = response.read(_MOST_BYTES + 1)
            if len(text) > _MOST_BYTES:
                raise InstanceError(f"the service's answer is longer than {_MOST_BYTES} bytes", path=place)
            return json.loads(text)
        except urllib.error.HTTPError as error:
            hint = {401: "give a reader's token", 403: "the token may not read"}.get(error.code, "is it the service?")
            if 300 <= error.code < 400:
                hint = "a redirection; give the address that it leads to"
            raise InstanceError(f"the service answered {error.code}; {hint}", path=place) from error
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise InstanceError(f"the service cannot be read: {reason}", path=place) from error


def _readings(url: str, names: list[str], max_age_s: float, connection: _Connection) -> Iterator[dict[str, Any]]:
    """All pages of the last values."""
    parsed = urllib.parse.urlsplit(url)
    if parsed.scheme not in ("http", "https"):
        raise InstanceError("not a service address; give http://host:port", path=url)
    if parsed.scheme == "http" and parsed.hostname not in ("127.0.0.1", "::1", "localhost"):
        warnings.warn(f"values and token travel from and to {parsed.hostname} in clear; use https", stacklevel=3)
    query = {"name": names, "max_age": [str(max_age_s)]}
    while True:
        page = connection.fetch(f"{url.rstrip('/')}/v1/data?{urllib.parse.urlencode(query, doseq=True)}")
        yield from page["readings"]
        if not page.get("next"):
            return
        query["after"] = [page["next"]]
