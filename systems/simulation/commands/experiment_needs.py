"""External needs of experiments: public data that the project does not contain, and a running service.

The service runs as long as an experiment needs it, initially empty, on a local port only.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flowlex.systems.telemetry.http_client import TelemetryClient


_START_S = 30.0


@dataclass(frozen=True)
class HandedIn:
    """See `flowlex.systems.simulation.experiments.load_partition.Information`."""

    url: str
    client: TelemetryClient

    def write(self, node: str, name: str, value: Any) -> None:
        """Store a value; it is on disk when this returns."""
        from flowlex.systems.telemetry.request_documents import Sample

        self.client.write(node, [Sample(name=name, time=time.time(), value=value)])


@contextlib.contextmanager
def running_service() -> Iterator[HandedIn]:
    """Serve a new, empty SQLite database on a free loopback port; it is deleted afterwards."""
    import uvicorn

    from flowlex.systems.telemetry.http_client import TelemetryClient
    from flowlex.systems.telemetry.rest_app import create_app
    from flowlex.systems.telemetry.service_context import Settings
    from flowlex.systems.telemetry.store import Store

    with tempfile.TemporaryDirectory() as folder, contextlib.closing(Store(f"sqlite:///{folder}/service.db")) as store:
        app = create_app(store, Settings(require_token=False, requests_per_s=None))
        config = uvicorn.Config(app, host="127.0.0.1", port=0, log_config=None, access_log=False)
        with contextlib.closing(config.bind_socket()) as listener:
            server = uvicorn.Server(config)
            thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
            thread.start()
            try:
                until = time.monotonic() + _START_S
                while not server.started:
                    if time.monotonic() > until or not thread.is_alive():
                        raise RuntimeError(f"the node information service did not start in {_START_S:g} s")
                    time.sleep(0.01)
                url = f"http://127.0.0.1:{listener.getsockname()[1]}"
                with TelemetryClient(url) as client:
                    yield HandedIn(url, client)
            finally:
                server.should_exit = True
                thread.join(_START_S)


@dataclass(frozen=True)
class Need:
    """A keyword argument that an experiment needs."""

    missing: Callable[[], str]  # why it is missing, and what to do; empty if it is available
    give: Callable[[], AbstractContextManager[Any]]  # opens it


def _no_service() -> str:
    return (
        ""
        if find_spec("uvicorn")
        else "the node information service is not installed: pip install 'flowlex[telemetry]'"
    )


def _data(variable: str, what: str) -> Need:
    """A path that an environment variable names."""

    def missing() -> str:
        given = os.environ.get(variable)
        if given is None:
            return f"set {variable} to {what}"
        return "" if Path(given).exists() else f"{variable} is {given}, which does not exist; set it to {what}"

    return Need(missing, lambda: nullcontext(Path(os.environ[variable])))


#: By keyword of the experiment.
NEEDS: dict[str, Need] = {
    "service": Need(_no_service, running_service),
    "trace": _data("FLOWLEX_COFLOW_TRACE", "coflow-benchmark's file FB2010-1Hr-150-0.txt, plain or gzip"),
    "openb": _data("FLOWLEX_OPENB", "the folder with the lists of nodes and pods of the openb trace"),
}
