"""A load-partition instance from what the node information service has stored.

Uses the standard library only, so that a scheduler needs no extra to read.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from flowlex.instances.base import InstanceError
from flowlex.instances.load import Block, LoadNode, LoadPartitionInstance, RunRecord

__all__ = ["DATA_NAMES", "from_telemetry"]

#: What is read, by its data name in the service: the instance's field, and what it says.
DATA_NAMES = {
    "items": "items that lie on the node: a number, or a list of {name, items, holders}",
    "cpu_cores": "configuration",
    "cpu_free": "idle fraction of the CPUs",
    "processing_speed": "items per second from the run history",
}


def from_telemetry(
    url: str,
    *,
    token: str | None = None,
    max_age_s: float = 60.0,
    names: Mapping[str, str] | None = None,
    timeout_s: float = 10.0,
) -> LoadPartitionInstance:
    """Read last values and make an instance of the nodes whose values are fresh.

    Parameters
    ----------
    url
        Address of the service, ``http://host:port``.
    token
        A reader's token.
    max_age_s
        A node with an older value is left out; the instance's ``comment`` names it and says why.
    names
        Other data names than those of `DATA_NAMES`: its key to the name in the service.

    Raises
    ------
    InstanceError
        The service does not answer or refuses, no node is fresh, or a value is not of its kind.
    """
    named = {key: (names or {}).get(key, key) for key in DATA_NAMES}
    query = urllib.parse.urlencode({"name": list(named.values()), "max_age": max_age_s}, doseq=True)
    readings = _fetch(f"{url.rstrip('/')}/v1/data?{query}", token, timeout_s)["readings"]
    values: dict[str, dict[str, Any]] = {}
    left_out: dict[str, str] = {}
    for reading in readings:
        node = reading["node"]
        values.setdefault(node, {})[reading["name"]] = reading["value"]
        if reading["stale"]:
            left_out.setdefault(node, f"{reading['name']} is {reading['age_s']:.0f} s old")
    fresh = {node: found for node, found in sorted(values.items()) if node not in left_out}
    for node, found in fresh.items():
        if found.keys() == {named["items"]}:
            left_out[node] = "nothing tells its capacity"
    nodes = [_node(node, found, named) for node, found in fresh.items() if node not in left_out]
    said = "; ".join(f"{node} ({why})" for node, why in sorted(left_out.items()))
    if not nodes:
        raise InstanceError(f"no node has fresh values; left out: {said or 'none is known'}", path=url)
    blocks = [b for node in nodes for b in _blocks(node.name, fresh[node.name].get(named["items"], 0))]
    comment = f"from {url}" + (f"; left out: {said}" if said else "")
    try:
        return LoadPartitionInstance(name="live", comment=comment, nodes=tuple(nodes), blocks=tuple(blocks))
    except ValidationError as error:
        reason = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise InstanceError(reason, path=url) from error


def _fetch(url: str, token: str | None, timeout_s: float) -> Any:
    if not url.startswith(("http://", "https://")):
        raise InstanceError("not a service address; give http://host:port", path=url)
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    # No proxy: a variable of the environment must not send the token elsewhere.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    place = url.partition("/v1/")[0]
    try:
        with opener.open(request, timeout=timeout_s) as response:
            return json.load(response)
    except urllib.error.HTTPError as error:
        hint = {401: "give a reader's token", 403: "the token may not read"}.get(error.code, "is it the service?")
        raise InstanceError(f"the service answered {error.code}; {hint}", path=place) from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise InstanceError(f"the service cannot be read: {reason}", path=place) from error


def _node(name: str, found: Mapping[str, Any], named: Mapping[str, str]) -> LoadNode:
    speed = found.get(named["processing_speed"])
    try:
        return LoadNode(
            name=name,
            configuration=found.get(named["cpu_cores"]),
            cpu_free=found.get(named["cpu_free"]),
            history=() if speed is None else (RunRecord(items=speed, seconds=1.0),),
        )
    except ValidationError as error:
        first = error.errors()[0]
        raise InstanceError(f"{first['loc'][0]} of node {name}: {first['msg']}") from error


def _blocks(node: str, value: Any) -> list[Block]:
    if isinstance(value, bool) or not isinstance(value, (int, float, list)):
        raise InstanceError(f"items of node {node}: a number or a list is expected")
    if isinstance(value, list):
        try:
            return [Block.model_validate(entry) for entry in value]
        except ValidationError as error:
            raise InstanceError(f"items of node {node}: {error.errors()[0]['msg']}") from error
    if value < 0 or value != int(value):
        raise InstanceError(f"items of node {node}: {value} is no count")
    return [Block(name=f"{node} items", items=int(value), holders=(node,))] if value else []
