"""Written objects, read by `kubectl`, the official Python client's models, and a real server if there is one.

`FLOWLEX_KUBERNETES` names a folder with ``kwokctl`` (and ``kubectl``); tests that need it are skipped elsewhere.
"""

import json
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from flowlex.cli.app import app

KUBECTL = shutil.which("kubectl")
FOLDER = os.environ.get("FLOWLEX_KUBERNETES")
NODES: list[dict[str, Any]] = [
    {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"nvidia.com/gpu.count": "2"}},
        "spec": {},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10", "aliyun.com/gpu-mem": "32"}},
    }
    for name in ("n1", "n2")
]


def pod(name: str, node: str = "", priority: int = 0, **asked: str) -> dict[str, Any]:
    meta: dict[str, Any] = {"name": name, "namespace": "default", "uid": f"u-{name}", "resourceVersion": "5"}
    meta["ownerReferences"] = [
        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r", "controller": True}
    ]
    spec: dict[str, Any] = {"containers": [{"name": "m", "image": "i", "resources": {"limits": asked}}]}
    spec |= {"priority": priority} | ({"nodeName": node} if node else {})
    phase = {"phase": "Running" if node else "Pending"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": phase}


PODS = [
    pod("old-1", "n1", cpu="3"),
    pod("old-2", "n2", cpu="3"),
    pod("large", priority=9, cpu="3"),
    pod("small", priority=9, **{"cpu": "500m", "aliyun.com/gpu-mem": "4"}),
]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """The objects written of each kind."""
    folder = tmp_path_factory.mktemp("written")
    (folder / "c.json").write_text(json.dumps({"kind": "List", "items": NODES + PODS}), encoding="utf-8")
    options = ["--preempt-below", "5", "-o", str(folder / "b.json")]
    told = CliRunner().invoke(app, ["place", str(folder / "c.json"), *options])
    assert told.exit_code == 0, told.output
    items = json.loads((folder / "b.json").read_text(encoding="utf-8"))["items"]
    found = {kind: [item for item in items if item["kind"] == kind] for kind in ("Eviction", "Binding")}
    assert [len(each) for each in found.values()] == [1, 2]
    return found


class _Server(BaseHTTPRequestHandler):
    """Serve the part of an API server that `kubectl create --dry-run=client` needs: the list of kinds."""

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        resources = [
            {"name": n, "singularName": "", "namespaced": True, "kind": k, "verbs": ["create"]} for n, k in KINDS
        ]
        known: dict[str, Any] = {
            "/api": {"kind": "APIVersions", "versions": ["v1"]},
            "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": []},
            "/api/v1": {"kind": "APIResourceList", "groupVersion": "v1", "resources": resources},
            "/version": {"major": "1", "minor": "34", "gitVersion": "v1.34.0"},
        }
        data = json.dumps(known.get(path, {"kind": "Status", "status": "Failure", "code": 404})).encode()
        self.send_response(200 if path in known else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


KINDS = (("bindings", "Binding"), ("pods", "Pod"), ("pods/eviction", "Eviction"))


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """Return the address of an API server that serves only the list of kinds."""
    made = ThreadingHTTPServer(("127.0.0.1", 0), _Server)
    threading.Thread(target=made.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{made.server_address[1]}"
    made.shutdown()
    made.server_close()


@pytest.mark.skipif(KUBECTL is None, reason="no kubectl here (Debian: kubernetes-client)")
@pytest.mark.parametrize("suffix", ["json", "yaml"])
def test_kubectl_reads_bindings(tmp_path: Path, written: Any, server: str, suffix: str) -> None:
    import yaml

    path, document = tmp_path / f"b.{suffix}", {"apiVersion": "v1", "kind": "List", "items": written["Binding"]}
    text = json.dumps(document) if suffix == "json" else yaml.safe_dump(document)
    path.write_text(text, encoding="utf-8")
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    command = [str(KUBECTL), "--server", server, "create", "--validate=false", "--dry-run=client", "-o", "name", "-f"]
    told = subprocess.run([*command, str(path)], env=environment, capture_output=True, text=True, timeout=120)
    assert told.returncode == 0, told.stderr
    assert sorted(told.stdout.split()) == ["binding/large", "binding/small"]


def test_the_models_of_the_official_client_take_every_object(written: Any) -> None:
    kubernetes = pytest.importorskip("kubernetes", reason="needs pip install 'flowlex[kubernetes]'")
    client = kubernetes.client
    api = client.ApiClient(client.Configuration())

    class Answer:
        def __init__(self, document: Any) -> None:
            self.data = json.dumps(document)

    for kind, model in (("Binding", "V1Binding"), ("Eviction", "V1Eviction")):
        for item in written[kind]:
            read = api._ApiClient__deserialize(json.loads(Answer(item).data), model)
            again = api.sanitize_for_serialization(read)
            assert again == item  # no field is unknown to the model, and none has another type


@pytest.mark.skipif(FOLDER is None, reason="FLOWLEX_KUBERNETES names no folder with kwokctl")
def test_beside_the_real_scheduler(tmp_path: Path, written: Any) -> None:
    """With kwokctl: apply our bindings on a simulated cluster; every binding is accepted."""
    kwokctl = Path(str(FOLDER)) / "kwokctl"
    if not kwokctl.is_file():
        pytest.skip(f"{kwokctl} is not there")

    def run(*words: str) -> str:
        return subprocess.run(words, check=True, capture_output=True, text=True, timeout=280).stdout

    kubectl = str(Path(str(FOLDER)) / "kubectl") if (Path(str(FOLDER)) / "kubectl").is_file() else "kubectl"
    run(str(kwokctl), "create", "cluster", "--name", "flowlex", "--disable-kube-scheduler", "--wait", "200s")
    try:
        file = tmp_path / "o.json"
        plain = [{**item, "metadata": {"name": item["metadata"]["name"]}} for item in (*NODES, *PODS[2:])]
        file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": plain}), encoding="utf-8")
        run(kubectl, "create", "-f", str(file))
        for item in written["Binding"]:
            own = {**item, "metadata": {"name": item["metadata"]["name"], "namespace": "default"}}
            file.write_text(json.dumps(own), encoding="utf-8")
            run(kubectl, "create", "-f", str(file))
    finally:
        run(str(kwokctl), "delete", "cluster", "--name", "flowlex")
