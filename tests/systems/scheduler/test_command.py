"""``flowlex serve``: options kept in the database, refusals before anything is served, old state folders."""

import gzip
import json
import zlib

import pytest
from typer.testing import CliRunner

from flowlex.cli.app import app
from flowlex.instances import generate, write_instance
from tests.systems.scheduler.conftest import CLUSTER, GPU


@pytest.fixture
def serve(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def listen(served, *_):
        run.replica = served.state.service.replica
        run.replica.close()

    monkeypatch.setattr("flowlex.systems.scheduler.commands.serve.listen", listen)

    def run(*arguments, code=0):
        said = CliRunner().invoke(app, ["serve", *arguments])
        assert said.exit_code == code, said.output
        return " ".join(said.output.split())

    return run


def test_the_first_start_settles_the_options(serve, tmp_path):
    write_instance(generate("flow-random", seed=4), tmp_path / "cluster.json")
    here = ("--database", "sqlite:///here.db")
    assert "nothing has been served from" in serve("scheduler", *here, "--follow", code=1)
    assert not list(tmp_path.glob("*.db"))
    begin = ("scheduler", *here, "--cluster", "cluster.json", "--goals", "quincy", "--port", "0")
    serve(*begin)
    tokens = tmp_path / "flowlex-scheduler-tokens.json"
    assert set(json.loads(tokens.read_text())) == {"admin", "reader"}
    assert tokens.stat().st_mode & 0o77 == 0
    serve("scheduler", *here)
    serve("scheduler", *here, "--goals", "quincy", "--follow")
    said = serve("scheduler", *here, "--goals", "borg", code=1)
    assert "--goals borg: sqlite:///here.db was begun with quincy, which holds; drop the option" in said
    assert "--cluster: sqlite:///here.db has a cluster already" in serve(*begin, code=1)
    assert "belongs to a service 'scheduler', not 'gpu'" in serve("gpu", *here, code=1)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("scheduler", "--host", "0.0.0.0"), "tokens would travel in clear"),
        (("scheduler", "--host", "0.0.0.0", "--no-auth"), "--no-auth is for loopback only"),
        (("gpu", "--tls-cert", "a.pem"), "go together"),
        (("scheduler", "--cluster", "gpu.json"), "is a flow-scheduling instance, this is 'gpu-assignment'"),
        (("scheduler", "--database", "mysql://x"), "is not supported"),
        (("scheduler", "--database", "sqlite:///no/such.db"), "no/such.db cannot be used"),
        (("scheduler", "--database", "sqlite:///no/such.db"), "make its folder no"),
        (("gpu", "--database", "sqlite:///gpu.json"), "file is not a database; name another file"),
    ],
)
def test_refusals_leave_nothing_served(serve, tmp_path, arguments, said):
    write_instance(generate("gpu-figure1"), tmp_path / "gpu.json")
    assert said in serve(*arguments, code=1)
    assert not list(tmp_path.glob("*.db"))


def line(record):
    text = json.dumps(record, separators=(",", ":")).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def old_folder(folder, kind, options, *records, tail=b""):
    folder.mkdir()
    (folder / "service.json").write_text(json.dumps({"kind": kind, "options": options, "epoch_s": 1.0}))
    (folder / "log-000000000.jsonl").write_bytes(b"".join(map(line, records)) + tail)


def test_an_old_state_folder_is_read_into_a_database(serve, tmp_path):
    events = [{"event": "add_machine", "machine": {"name": "m"}}]
    events.append({"event": "submit", "job": {"name": "j", "tasks": [{"name": "a"}, {"name": "b"}]}})
    decided = {"number": 1, "placed": [["b", "m"]], "moved": [], "stopped": [], "waiting": [["a", "it waits"]]}
    records = [{"at_s": 1.0, "events": events, "key": "k", "refused": ""}, {"at_s": 2.0, "decided": decided}]
    old_folder(tmp_path / "old", "scheduler", CLUSTER, *records, tail=b"0123abcd {")
    here = ("--database", "sqlite:///new.db")
    assert "2 records are in sqlite:///new.db" in serve("import-state", "old", *here)
    serve("scheduler", *here)
    state = serve.replica._memory.core.scheduler.state
    assert (state.tasks["a"].machine, state.tasks["b"].machine) == (None, "m")
    assert "belongs to a service already" in serve("import-state", "old", *here, code=1)
    assert "service.json cannot be read" in serve("import-state", "elsewhere", *here, code=1)


def test_damage_of_an_old_folder_is_named(serve, tmp_path):
    old_folder(tmp_path / "old", "gpu", GPU, {"at_s": 1.0, "events": []}, tail=b"00000000 {}\n")
    assert "line 2 is damaged" in serve("import-state", "old", code=1)
    (tmp_path / "old" / "state-000000003").write_bytes(gzip.compress(b"{}"))
    assert "Error" in serve("import-state", "old", "--database", "sqlite:///b.db", code=1)
    assert not list(tmp_path.glob("*.db"))
