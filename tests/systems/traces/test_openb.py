"""The importer of the public GPU trace and the arrivals drawn from it; pods as tasks."""

import contextlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from flowlex.cli.app import app
from flowlex.instances import InstanceError, generate
from flowlex.instances.pods import Pod, PodInstance, PodNode
from flowlex.systems.traces.openb import UnknownModelWarning, read_openb
from flowlex.systems.traces.pods_as_tasks import flow_of_pods

NODES = "sn,cpu_milli,memory_mib,gpu,model\nn0,64000,262144,2,P100\nn1,96000,393216,0,\nn2,96000,393216,8,G2\n"
PODS = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
    "p0,12000,16384,1,460,,LS,Running,0,100,0\n"
    "p1,88000,327680,8,1000,V100M16|G2,Burstable,Pending,50,90,\n"
    "p2,3152,5600,0,0,,BE,Failed,200,300,201\n"
)


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    (tmp_path / "nodes.csv").write_text(NODES)
    (tmp_path / "pods.csv").write_text(PODS)
    return tmp_path / "nodes.csv", tmp_path / "pods.csv"


def test_the_public_trace_is_read(files: tuple[Path, Path]) -> None:
    instance = read_openb(*files)
    assert [(n.name, n.cpu_cores, n.memory_gb, n.cards, n.card_model) for n in instance.nodes] == [
        ("n0", 64.0, 256.0, 2, "P100"),
        ("n1", 96.0, 384.0, 0, None),
        ("n2", 96.0, 384.0, 8, "G2"),
    ]
    first, second, third = instance.pods
    assert (first.gpu_share, first.gpu_cards, first.priority) == (0.46, 1, 3)
    assert (second.gpu_share, second.gpu_cards, second.card_models) == (1.0, 8, ("V100M16", "G2"))
    assert not third.wants_gpu and third.cpu_cores == 3.152
    assert [pod.name for pod in read_openb(*files, at_s=60).pods] == ["p0", "p1"]
    assert len(read_openb(*files, most_pods=1).pods) == 1


def test_a_placement_of_the_trace(files: tuple[Path, Path]) -> None:
    from flowlex.models.pods.model import PodPlacement

    solution = PodPlacement(read_openb(*files)).solve("highs")
    placement = solution.to_dict()["answer"]["placement"]
    assert placement["p1"] == "n2" and placement["p0"] in ("n0", "n2") and len(placement) == 3


@pytest.mark.parametrize(
    ("which", "text", "message"),
    [
        (0, "a,b\n1,2\n", "line 1: the header lacks sn, cpu_milli"),
        (0, NODES.partition("\n")[0], "the node list has no rows"),
        (0, NODES + "n3,64000\n", "line 5: 2 cells where the header has 5 columns; is the row cut off"),
        (0, NODES + "n3,x,1,0,\n", "line 5: cpu_milli is 'x'; a number of at least 0"),
        (0, NODES + "n3,64000,1,2.5,T4\n", "line 5: gpu is '2.5'; an integer"),
        (0, NODES + "n3,64000,1,2,XYZ\n", "line 5: card model 'XYZ' is not known; one of: P100"),
        (0, NODES + "n3,0,1024,0,\n", "line 5: cpu_cores: .*greater than 0"),
        (0, NODES + "n0,64000,1024,0,\n", "line 5: sn 'n0' is that of line 2 as well"),
        (1, NODES, "line 1: the header lacks name"),
        (1, PODS + "p3,1,1,1,1500,,LS,R,0,1,0\n", "line 5: gpu_milli is 1500 for 1 card"),
        (1, PODS + "p3,nan,1,0,0,,LS,R,0,1,0\n", "line 5: cpu_milli is 'nan'"),
        (1, PODS + "p3,1,1,0,0,,Best,R,0,1,0\n", "line 5: qos 'Best' is not known"),
        (1, PODS + ",1,1,0,0,,LS,R,0,1,0\n", "line 5: name: must not be empty"),
        (1, PODS + "p0,1,1,0,0,,LS,R,0,1,0\n", "line 5: name 'p0' is that of line 2 as well"),
        (1, PODS + '"p3,1,1,0,0,,LS,R,0,1,0\n', "line 5: not CSV"),
        (1, "", "the file is empty"),
    ],
)
def test_damaged_traces_name_the_line(files: tuple[Path, Path], which: int, text: str, message: str) -> None:
    files[which].write_text(text)
    with pytest.raises(InstanceError, match=message) as error:
        read_openb(*files)
    assert str(files[which]) in str(error.value)


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_any_bytes_are_read_or_refused(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("openb")
    raw = bytearray(PODS.encode())
    for _ in range(data.draw(st.integers(0, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    (folder / "n.csv").write_text(NODES)
    (folder / "p.csv").write_bytes(bytes(raw[: data.draw(st.integers(0, len(raw)))]))
    with contextlib.suppress(InstanceError):
        read_openb(folder / "n.csv", folder / "p.csv")


TWO = "sn,cpu_milli,memory_mib,gpu,model\nn0,32000,65536,2,T4\nn1,32000,65536,2,P100\n"
FIVE = "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np0,1000,1024,1,500\np1,1000,1024,0,0\np2,1000,1024,1,1000\n"
SPEC = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\np0,1000,1024,1,500,T4|A10\np1,1000,1024,1,500,V100M32|A10\n"
)


def lists(folder: Path, pods: str = FIVE) -> dict[str, Any]:
    (folder / "nodes.csv").write_text(TWO)
    (folder / "pods.csv").write_text(pods)
    return {"nodes": folder / "nodes.csv", "pods": folder / "pods.csv"}


@pytest.mark.parametrize("load", [0.1, 0.5, 1.3, 3.0])
def test_requests_reach_the_load_with_the_last_pod(tmp_path: Path, load: float) -> None:
    made: Any = generate("openb-arrivals", seed=7, load=load, **lists(tmp_path))
    asked = [pod.gpu_share * pod.gpu_cards if pod.wants_gpu else 0.0 for pod in made.pods]
    assert sum(asked[:-1]) < 4 * load <= sum(asked)
    assert generate("openb-arrivals", seed=7, load=load, **lists(tmp_path)) == made
    assert len({pod.name for pod in made.pods}) == len(made.pods)
    first = {pod.name.partition("-")[2] for pod in made.pods[:3]}
    assert len(first) == min(3, len(made.pods))  # each once before any is copied


def test_pods_without_gpus_reach_no_load(tmp_path: Path) -> None:
    with pytest.raises(InstanceError, match="no pod asks for a GPU"):
        generate("openb-arrivals", **lists(tmp_path, "\n".join([*FIVE.split("\n")[:1], "p,1,1,0,0"])))


def test_lists_with_five_columns_are_read(tmp_path: Path) -> None:
    made = read_openb(**lists(tmp_path))
    assert [pod.gpu_share for pod in made.pods] == [0.5, 0.0, 1.0] and {pod.priority for pod in made.pods} == {0}
    with pytest.raises(InstanceError, match="it has no creation_time, so nothing is known of a time; leave at_s out"):
        read_openb(**lists(tmp_path), at_s=3.0)


def test_models_that_no_node_has_are_reported(tmp_path: Path) -> None:
    with pytest.warns(UnknownModelWarning, match=r"model A10, V100M32; so 1 pod fits nowhere"):
        read_openb(**lists(tmp_path, SPEC))
    names = [str(path) for path in lists(tmp_path, SPEC).values()]
    told = CliRunner().invoke(app, ["import", "openb", *names, "-o", str(tmp_path / "i.json")])
    assert told.exit_code == 0 and "so 1 pod fits nowhere" in told.output.replace("\n", " ")


def test_the_command_takes_its_files_after_the_name(tmp_path: Path) -> None:
    names = [str(path) for path in lists(tmp_path).values()]
    run, out = CliRunner(), str(tmp_path / "a.json")
    assert run.invoke(app, ["generate", "openb-arrivals", *names, "--set", "load=0.5", "-o", out]).exit_code == 0
    assert "too much" in run.invoke(app, ["generate", "openb-arrivals", *names, "x", "-o", "-"]).output
    assert "too much" in run.invoke(app, ["generate", "kubeflow-testbed", names[0], "-o", "-"]).output
    with pytest.raises(InstanceError, match="it needs pods; on the command line, after the name"):
        generate("openb-arrivals", nodes=names[0])


def test_pods_that_tasks_cannot_say_are_refused():
    node = PodNode(name="n", cpu_cores=4, memory_gb=8)
    with pytest.raises(
        InstanceError, match=r"pod 'p' has node, which tasks of flow scheduling do not; solve it as pods"
    ):
        flow_of_pods(PodInstance(nodes=(node,), pods=(Pod(name="p", node="n"),)))
    ends = (Pod(name="p", priority=2000), Pod(name="q", priority=-1))
    with pytest.raises(InstanceError, match="priorities of pods span 2001, those of jobs 1000"):
        flow_of_pods(PodInstance(nodes=(node,), pods=ends))
