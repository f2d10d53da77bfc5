"""``flowlex import`` and ``flowlex export`` of both phases of pod placement."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

NODES = "sn,cpu_milli,memory_mib,gpu,model\nn0,64000,262144,2,P100\nn1,96000,393216,0,\n"
PODS = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
    "p0,12000,16384,1,460,,LS,Running,0,100,0\n"
    "p1,8000,16384,2,1000,P100|T4,Burstable,Pending,50,90,\n"
    "p2,3152,5600,0,0,,BE,Failed,200,300,201\n"
)


@pytest.fixture
def files(run: Any, tmp_path: Path) -> tuple[Path, Path]:
    (tmp_path / "nodes.csv").write_text(NODES)
    (tmp_path / "pods.csv.gz").write_bytes(gzip.compress(PODS.encode()))
    return tmp_path / "nodes.csv", tmp_path / "pods.csv.gz"


def test_a_trace_becomes_an_instance_that_solves(run: Any, files: tuple[Path, Path]) -> None:
    assert run("import", "openb", *files, "-o", "trace.json").exit_code == 0
    document = json.loads(Path("trace.json").read_text())
    assert document["kind"] == "pod-placement" and [pod["name"] for pod in document["pods"]] == ["p0", "p1", "p2"]
    result = run("solve", "trace.json", "--engine", "highs", "--json")
    assert result.exit_code == 0 and json.loads(result.stdout.splitlines()[0])["status"] == "optimal"


def test_parts_of_a_trace(run: Any, files: tuple[Path, Path]) -> None:
    part = ("--at", "60", "--most-pods", "1", "--most-nodes", "1")
    assert run("import", "openb", *files, "-o", "one.json.gz", *part).exit_code == 0
    document = json.loads(gzip.decompress(Path("one.json.gz").read_bytes()))
    assert [pod["name"] for pod in document["pods"]] == ["p0"] and len(document["nodes"]) == 1
    result = run("import", "openb", *files, "-o", "-", "--at", "250")
    assert [pod["name"] for pod in json.loads(result.stdout)["pods"]] == ["p2"]


@pytest.mark.parametrize(
    ("which", "text", "message"),
    [
        (0, "a,b\n1,2\n", "line 1: the header lacks sn"),
        (0, NODES + "n3,64000\n", "line 4: 2 cells where the header has 5"),
        (0, NODES + "n3,x,1,0,\n", "line 4: cpu_milli is 'x'"),
    ],
)
def test_damaged_files_name_the_line(run: Any, files: tuple[Path, Path], which: int, text: str, message: str) -> None:
    files[which].write_text(text)
    result = run("import", "openb", *files, "-o", "x.json")
    assert result.exit_code == 2 and message in " ".join(result.output.split())
    assert not Path("x.json").exists()


def test_a_missing_file_is_named(run: Any, files: tuple[Path, Path]) -> None:
    result = run("import", "openb", "absent.csv", files[1], "-o", "x.json")
    assert result.exit_code == 2 and "absent.csv" in result.output


def test_either_stage_is_exported(run: Any, files: tuple[Path, Path]) -> None:
    assert run("import", "openb", *files, "-o", "trace.json").exit_code == 0
    assert run("export", "trace.json", "--to", "lp", "-o", "one.lp").exit_code == 0
    assert run("export", "trace.json", "--to", "lp", "-o", "two.lp", "--set", "stage=balance").exit_code == 0
    one, two = Path("one.lp").read_text(), Path("two.lp").read_text()
    assert "tangent" not in one and "tangent" in two and "_kept" in two
    result = run("export", "trace.json", "--to", "lp", "-o", "x.lp", "--set", "stage=third")
    assert result.exit_code == 2 and "stage" in result.output


def google_tables(root: Path, last_task: str = "600000000,,100,1,,0,user,3,9,0.1,0.1,0.0001,1") -> Path:
    tables = {
        "machine_events": ["0,7,0,plat,0.5,0.25", "0,8,0,plat,1,1"],
        "task_events": ["600000000,,100,0,,0,user,3,9,0.1,0.1,0.0001,1", last_task],
    }
    for table, rows in tables.items():
        (root / table).mkdir(parents=True, exist_ok=True)
        (root / table / "part-00000-of-00001.csv.gz").write_bytes(gzip.compress(("\n".join(rows) + "\n").encode()))
    return root


def test_a_google_trace_becomes_a_log_that_replays(run: Any, tmp_path: Path) -> None:
    folder = google_tables(tmp_path / "trace")
    assert run("import", "google", folder, "-o", "log.jsonl", "--slots", "4", "--step", "30").exit_code == 0
    events = [json.loads(line) for line in Path("log.jsonl").read_text().splitlines()]
    jobs = [event["job"] for event in events if event["event"] == "submit"]
    assert [len(job["tasks"]) for job in jobs] == [2] and jobs[0]["different_machines"]
    assert sorted(e["machine"]["slots"] for e in events if e["event"] == "add_machine") == [2, 4]
    result = run("replay", "log.jsonl", "--goals", "quincy")
    assert result.exit_code == 0 and "placed" in result.output
    assert run("import", "google", folder, "-o", "free.jsonl", "--anywhere").exit_code == 0
    assert json.loads(Path("free.jsonl").read_text().splitlines()[-2])["job"]["different_machines"] in (None, "")


def test_a_google_trace_at_one_time_is_solved_with_its_capacities(run: Any, tmp_path: Path) -> None:
    folder = google_tables(tmp_path / "trace", last_task="600000000,,100,1,,0,user,3,9,0.4,0.1,0.0001,0")
    assert run("import", "google", folder, "-o", "then.json", "--at", "700").exit_code == 0
    document = json.loads(Path("then.json").read_text())
    assert [m["capacity"] for m in document["machines"]] == [{"cpu": 0.5, "memory": 0.25}, {"cpu": 1.0, "memory": 1.0}]
    assert [t["demands"]["cpu"] for job in document["jobs"] for t in job["tasks"]] == [0.1, 0.4]
    result = run("solve", "then.json", "--engine", "highs", "--json")
    assert result.exit_code == 0 and json.loads(result.stdout.splitlines()[0])["status"] == "optimal"
    for wrong, why in ((("--at", "700", "--until", "9"), "no --until"), (("--most-jobs", "2"), "give that with --at")):
        result = run("import", "google", folder, "-o", "x.json", *wrong)
        assert result.exit_code == 2 and why in " ".join(result.output.split())


def test_pods_become_tasks_with_demands(run: Any, files: tuple[Path, Path]) -> None:
    assert run("import", "openb", *files, "-o", "tasks.json", "--flow").exit_code == 0
    document = json.loads(Path("tasks.json").read_text())
    assert document["kind"] == "flow-scheduling" and document["machines"][0]["labels"] == ["P100"]
    tasks = {task["name"]: task for job in document["jobs"] for task in job["tasks"]}
    assert tasks["p1"]["demands"] == {"cpu": 8.0, "memory_gb": 16.0, "gpu": 2.0}
    assert tasks["p1"]["constraints"][0]["resources"] == ["P100", "T4"]
    assert run("solve", "tasks.json", "--engine", "highs").exit_code == 0


def test_a_damaged_google_trace_leaves_nothing(run: Any, tmp_path: Path) -> None:
    folder = google_tables(tmp_path / "trace", last_task="600000000,,100,x,,0,user,3,9,0.1,0.1,0.0001,0")
    result = run("import", "google", folder, "-o", "log.jsonl")
    assert result.exit_code == 2 and "line 2" in result.stderr
    assert not Path("log.jsonl").exists()
    result = run("import", "google", folder, "-o", "log.jsonl", "--step", "0")
    assert result.exit_code == 2 and "positive number of seconds" in result.stderr


def test_a_coflow_trace_becomes_an_instance(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("trace.txt").write_text("3 2\n1 0 1 0 1 1:3\n2 100 1 1 1 2:4\n")
    assert run("import", "coflow", "trace.txt", "-o", "a.json", "--set", "first=1", "--set", "slack=4").exit_code == 0
    made = json.loads(Path("a.json").read_text())
    assert (made["kind"], len(made["jobs"]), made["unit_mb"]) == ("jit-bandwidth", 1, 1.0)
    for setting, says in (("speed=1", "is none of rate_mbps, slack"), ("slack=much", "is not a number")):
        result = run("import", "coflow", "trace.txt", "-o", "b.json", "--set", setting)
        assert result.exit_code == 2
        assert says in " ".join(result.output.replace("│", " ").split())


def test_own_csv_files_become_an_instance(run, tmp_path):
    (tmp_path / "nodes.csv").write_text("name,configuration\na,2\nb,1\n")
    (tmp_path / "blocks.csv").write_text("name,items,holders\nlog,6,a;b\n")
    tables = ("nodes=nodes.csv", "blocks=blocks.csv", "--set", "seconds_per_item=0.5")
    assert run("import", "csv", "--kind", "load-partition", *tables, "-o", "load.json").exit_code == 0
    assert run("solve", "load.json").exit_code == 0
    columns = run("import", "csv", "--kind", "load-partition", "--columns").stdout
    assert "holders" in columns and "seconds_per_item" in columns


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--kind", "loads"], "'loads' is none of"),
        (["--kind", "load-partition"], "which tables, and where to?"),
        (["--kind", "load-partition", "nodes", "-o", "x.json"], "'nodes' is not TABLE=FILE"),
        (["--kind", "load-partition", "nodes=a", "nodes=b", "-o", "x.json"], "given twice"),
        (["--kind", "load-partition", "nodes=nowhere.csv", "-o", "x.json"], "nowhere.csv"),
    ],
)
def test_wrong_usage_of_the_importer_of_csv_files(run, arguments, words):
    refused = run("import", "csv", *arguments)
    assert refused.exit_code == 2 and words in refused.stderr
