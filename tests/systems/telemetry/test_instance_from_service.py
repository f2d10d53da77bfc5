"""Load-partition instances from the values of the node information service."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from flowlex.instances import InstanceError
from flowlex.systems.telemetry.instance_from_service import from_telemetry


@pytest.fixture
def service() -> Iterator[tuple[str, dict[str, Any]]]:
    """A server that answers like the service, with values set by the test."""
    answer: dict[str, Any] = {"status": 200, "readings": [], "seen": {}}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer["seen"] = {"path": self.path, "token": self.headers.get("Authorization")}
            pages = [answer["readings"], *answer.get("pages", [])]
            number = int(parse_qs(urlsplit(self.path).query).get("after", ["0"])[0])
            after = str(number + 1) if number + 1 < len(pages) else None
            text = json.dumps({"readings": pages[number], "missing": [], "next": after})
            body = answer.get("body", text.encode())
            self.send_response(answer["status"])
            if "location" in answer:
                self.send_header("Location", answer["location"])
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", answer
    server.shutdown()
    server.server_close()


def reading(name: str, node: str, value: Any, age_s: float = 1.0) -> dict[str, Any]:
    return {"name": name, "node": node, "value": value, "age_s": age_s, "stale": age_s > 60}


def test_live_values_become_an_instance(service: tuple[str, dict[str, Any]]) -> None:
    url, answer = service
    answer["readings"] = [
        *(reading("items", node, count) for node, count in (("a", 5), ("b", 0), ("late", 7), ("bare", 3))),
        *(reading("cpu_cores", node, 4) for node in ("a", "b", "late")),
        reading("processing_speed", "a", 12.5),
        reading("cpu_free", "late", 0.5, age_s=300.0),
    ]
    instance = from_telemetry(url, token="flx_reader")
    assert [(n.name, n.configuration, len(n.history)) for n in instance.nodes] == [("a", 4.0, 1), ("b", 4.0, 0)]
    assert instance.arrays.load.tolist() == [5, 0]
    assert "late (cpu_free is 300 s old)" in instance.comment
    assert "bare (its capacity is not reported)" in instance.comment
    assert answer["seen"]["token"] == "Bearer flx_reader" and "max_age=60" in answer["seen"]["path"]


def test_blocks_with_replicas_may_be_stored(service: tuple[str, dict[str, Any]]) -> None:
    url, answer = service
    blocks = [{"name": "x", "items": 3, "holders": ["a", "b"]}]
    answer["readings"] = [reading("items", "a", blocks), reading("cpu_cores", "a", 4), reading("cpu_cores", "b", 2)]
    assert from_telemetry(url).arrays.holds.tolist() == [[True, True]]
    answer["readings"] = answer["readings"][:2]
    assert from_telemetry(url).arrays.holds.tolist() == [[True]]  # b is not fresh: its replica does not count


def test_one_dead_node_breaks_nothing(service: tuple[str, dict[str, Any]]) -> None:
    url, answer = service

    def block(name: str, *holders: str, items: Any = 3) -> dict[str, Any]:
        return {"name": name, "items": items, "holders": list(holders)}

    told = [block("both", "a", "dead"), block("gone", "dead"), block("there", "dead", "b"), block("bad", "a", items=-1)]
    answer["readings"] = [
        reading("items", "a", [told[0], told[3]]),
        reading("items", "b", [{**told[2], "items": 4}, "nonsense"]),
        reading("items", "dead", told[:3], age_s=300.0),
        reading("items", "odd", 2.5),
        *(reading("cpu_cores", node, cores) for node, cores in (("a", 4), ("b", 2), ("odd", 1), ("mad", "many"))),
    ]
    instance = from_telemetry(url)
    assert [node.name for node in instance.nodes] == ["a", "b", "odd"]
    assert {b.name: (b.items, b.holders) for b in instance.blocks} == {"both": (3, ("a",)), "there": (4, ("b",))}
    for said in (
        "block gone (no fresh node holds it: dead)",
        "dead (items is 300 s old)",
        "items[1] of a (items: must be greater than or equal to 1",
        "items[1] of b (",
        "items of odd ('2.5' is neither a count nor a list)",
        "a second block there (dead says 3 items, another node 4, which is kept)",
        "mad (configuration: ",
    ):
        assert said in instance.comment, said


def test_performance_and_access_costs(service: tuple[str, dict[str, Any]]) -> None:
    url, answer = service
    answer["readings"] = [
        *(reading("items", node, 6) for node in ("a", "b")),
        reading("node_performance", "a", {"a": 2.0, "b": 1.0, "dead": 5.0}),
        reading("access_cost", "a", {"b": 0.5, "dead": 1.0, "a": 0.0}),
        reading("access_cost", "b", {"a": -1}),
    ]
    instance = from_telemetry(url)
    assert [node.performance for node in instance.nodes] == [2.0, 1.0]
    assert [(x.source, x.target, x.seconds_per_item) for x in instance.links] == [("a", "b", 0.5)]
    assert "cost from b to a (seconds_per_item: must be greater than or equal to 0 (got -1))" in instance.comment
    answer["readings"][3:] = [reading("access_cost", "b", {"a": {"b": 0.25}, "b": {"a": 0.75}}, age_s=5.0)]
    assert [link.seconds_per_item for link in from_telemetry(url).links] == [0.25, 0.75]
    answer["readings"][3:] = [reading("access_cost", "b", {"a": {"b": 0.25}}, age_s=500.0)]
    assert from_telemetry(url).links == ()  # a stale cost is no cost, and leaves no node out


def test_pages_are_followed_and_redirections_are_not(service: tuple[str, dict[str, Any]]) -> None:
    url, answer = service
    answer["readings"] = [reading("cpu_cores", "a", 4)]
    answer["pages"] = [[reading("cpu_cores", "b", 2)]]
    assert [node.name for node in from_telemetry(url).nodes] == ["a", "b"]
    answer["status"], answer["location"] = 307, "http://127.0.0.1:9/v1/data"
    with pytest.raises(InstanceError, match="answered 307; a redirection"):
        from_telemetry(url, token="flx_secret")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"status": 401}, "answered 401; give a reader's token"),
        ({"status": 403}, "the token may not read"),
        ({"status": 500}, "is it the service"),
        ({"body": b"<html>"}, "cannot be read"),
        ({"readings": []}, "no node has fresh values; left out: none is known"),
        ({"readings": [reading("items", "a", 1, 99)]}, "left out: a \\(items is 99 s old\\)"),
        ({"readings": [reading("cpu_free", "a", 3)]}, "a \\(cpu_free: .*less than or equal to 1"),
    ],
)
def test_what_is_refused(service: tuple[str, dict[str, Any]], change: dict[str, Any], message: str) -> None:
    url, answer = service
    answer.update(change)
    with pytest.raises(InstanceError, match=message):
        from_telemetry(url)


def test_no_service_there() -> None:
    with pytest.raises(InstanceError, match="cannot be read"):
        from_telemetry("http://127.0.0.1:1")
    with pytest.raises(InstanceError, match="give http://host:port"):
        from_telemetry("file:///etc/passwd")
