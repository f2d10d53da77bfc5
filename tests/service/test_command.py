"""``flowlex serve``: options stored in a folder, and requests refused before any file is created."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from flowlex.cli.app import app
from flowlex.instances import generate, write_instance


@pytest.fixture
def serve(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "flowlex.cli.serve_schedulers.listen", lambda app, *rest, **more: app.state.service.worker.close()
    )

    def run(*arguments, code=0):
        said = CliRunner().invoke(app, ["serve", *arguments])
        assert said.exit_code == code, said.output
        return said.output

    return run


def test_the_first_start_settles_the_options(serve, tmp_path):
    write_instance(generate("flow-random", seed=4), tmp_path / "cluster.json")
    begin = ("scheduler", "--state", "here", "--cluster", "cluster.json", "--goals", "quincy", "--port", "0")
    serve(*begin)
    tokens = json.loads((tmp_path / "here" / "tokens.json").read_text())
    assert set(tokens) == {"admin", "reader"}
    assert (tmp_path / "here" / "tokens.json").stat().st_mode & 0o77 == 0
    serve("scheduler", "--state", "here")
    serve("scheduler", "--state", "here", "--goals", "quincy")
    said = serve("scheduler", "--state", "here", "--goals", "borg", code=1)
    assert "--goals borg: here was begun with quincy, which holds; drop the option" in said
    assert "--cluster: here has a cluster already" in serve(*begin, code=1)
    assert "is the folder of a service 'scheduler', not 'gpu'" in serve("gpu", "--state", "here", code=1)
    (tmp_path / "here" / "service.json").write_text("{")
    assert "is damaged" in serve("scheduler", "--state", "here", code=1)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("scheduler", "--host", "0.0.0.0"), "tokens would travel in clear"),
        (("scheduler", "--host", "0.0.0.0", "--no-auth"), "--no-auth is for loopback only"),
        (("gpu", "--tls-cert", "a.pem"), "go together"),
        (("scheduler", "--goals", "best"), "no cost model is named 'best'"),
        (("scheduler", "--cluster", "gpu.json"), "is a flow-scheduling instance, this is 'gpu-assignment'"),
    ],
)
def test_refusals_leave_nothing_served(serve, tmp_path, arguments, said):
    write_instance(generate("gpu-figure1"), tmp_path / "gpu.json")
    assert said in serve(*arguments, "--state", "there", code=1)
    assert not list(tmp_path.glob("there/log-*"))
