"""The client with an in-memory application: lost answers, two services, and a recorded watch stream."""

import httpx
import pytest

from flowlex.client import Refused, Scheduler, Unreachable
from flowlex.instances.flow import FlowJob, FlowTask, Machine
from flowlex.instances.group_rules import Gang
from flowlex.systems.kubernetes.watch import PodPlacer

URL = "http://127.0.0.1"


class Wire(httpx.BaseTransport):
    """Transport to an application that loses the request or the answer for the listed request numbers."""

    def __init__(self, api, lost_requests=(), lost_answers=()):
        self.api, self.lost_requests, self.lost_answers, self.count = api, lost_requests, lost_answers, 0

    def handle_request(self, request):
        self.count += 1
        if self.count in self.lost_requests:
            raise httpx.ConnectError("lost")
        headers = {name: value for name, value in request.headers.items() if name != "content-length"}
        answer = self.api.request(request.method, str(request.url), content=request.read(), headers=headers)
        if self.count in self.lost_answers:
            raise httpx.ReadError("lost")
        return httpx.Response(answer.status_code, headers=answer.headers, content=answer.content)


def job(name, count=1):
    return FlowJob(name=name, tasks=tuple(FlowTask(name=f"{name}{k}") for k in range(count)))


def test_every_method_and_requests_that_are_sent_again(start):
    wire = Wire(start(goals="borg"), lost_requests=(1, 4), lost_answers=(2, 6, 8))
    with Scheduler(URL, transport=wire) as scheduler:
        scheduler.add_machine(Machine(name="m0", slots=2), Machine(name="m1"))
        scheduler.submit(job("a", 3), Gang(name="g", jobs=("a",)))
        scheduler.submit(job("b"))
        assert len(scheduler.step().placed) == 3
        assert scheduler.placements().places.keys() == {"a0", "a1", "a2"}
        assert scheduler.task("a0").machine and "gang" not in str(scheduler.task("b0").reason)
        assert scheduler.explain("b0").stops == ["a0", "a1", "a2"]  # the gang, by full solves
        scheduler.finish("a0", "a1")
        scheduler.remove_machine("m1")
        scheduler.cancel(task="b0")
        scheduler.step()
        follow = scheduler.follow(after=1)
        assert next(follow).number == 2 and scheduler.decisions(after=2) == []
        assert scheduler.placements().places == {"a2": "m0"}
        with pytest.raises(Refused, match="is here already"):
            scheduler.submit(job("a"))
        with pytest.raises(Refused, match="no task is named 'zz'"):
            scheduler.task("zz")
    assert wire.count > 15


def test_without_an_answer_it_gives_up():
    def nobody(request):
        raise httpx.ConnectError("nobody is here")

    with (
        Scheduler(URL, transport=httpx.MockTransport(nobody), patience_s=0.2) as scheduler,
        pytest.raises(Unreachable, match="nobody is here"),
    ):
        scheduler.step()
    with pytest.raises(ValueError, match="no service is named"):
        Scheduler()


def test_another_service_is_asked_where_the_first_does_not_answer():
    def answer(request):
        if request.url.port == 1:
            raise httpx.ConnectError("gone")
        return httpx.Response(200, json={"number": 7, "places": {}})

    with Scheduler(f"{URL}:1", f"{URL}:2", transport=httpx.MockTransport(answer)) as scheduler:
        assert scheduler.placements().number == 7


# A recorded watch stream --------------------------------------------------------------------------------------------
def node(name, cpu="4", kind="ADDED", **spec):
    metadata = {"name": name, "labels": {"disk": "ssd" if name == "n1" else "none"}}
    status = {"allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "10"}}
    return {"type": kind, "object": {"kind": "Node", "metadata": metadata, "spec": spec, "status": status}}


def pod(name, cpu, kind="ADDED", phase="Pending", uid="1", **spec):
    containers = [{"name": "c", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}]
    spec = {"schedulerName": "flowlex", "containers": containers, **spec}
    metadata = {"namespace": "default", "name": name, "uid": uid}
    return {"type": kind, "object": {"kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": phase}}}


def test_pods_of_a_recorded_watch_stream_are_placed(start):
    with Scheduler(URL, transport=Wire(start(goals="borg"))) as scheduler:
        placer = PodPlacer(scheduler)

        def play(*events):
            for event in events:
                placer.take(event)
            scheduler.step()
            return [
                (each["kind"], each["metadata"]["name"], each.get("target", {}).get("name"))
                for each in placer.bindings()
            ]

        first = play(
            node("n0"),
            node("n1"),
            node("n0", kind="MODIFIED"),  # nothing new
            pod("a", "3"),
            pod("b", "3", nodeSelector={"disk": "ssd"}),
            pod("c", "3"),
            pod("other", "3", schedulerName="default-scheduler"),
            pod("a", "3", kind="MODIFIED"),
        )
        assert sorted(first)[1] == ("Binding", "b", "n1") or sorted(first)[0] == ("Binding", "b", "n1")
        assert len(first) == 2 and {"a", "c"} & {name for _, name, _ in first}
        (early,) = {"a", "c"} & {name for _, name, _ in first}
        (late,) = {"a", "c"} - {early}
        assert play(pod(early, "3", kind="MODIFIED", phase="Succeeded")) == [("Binding", late, "n0")]
        assert ("Eviction", late, None) in play(pod("urgent", "4", priority=900, nodeSelector={"disk": "none"}))
        assert play(node("n1", kind="MODIFIED", unschedulable=True))[0] == ("Eviction", "b", None)


def test_a_pod_that_needs_more_than_a_task_can_state_waits_with_the_reason(start):
    """n1 has a taint, n2 is not ready: a plain pod goes to n0, a tolerant one with affinity for n1's disk to n1."""
    rule = {"key": "disk", "operator": "In", "values": ["ssd"]}
    hard = "requiredDuringSchedulingIgnoredDuringExecution"
    near = {"podAffinity": {hard: [{"topologyKey": "zone", "labelSelector": {}}]}}
    with Scheduler(URL, transport=Wire(start(goals="borg"))) as scheduler:
        placer = PodPlacer(scheduler)
        sick = node("n2")
        sick["object"]["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
        taints = [{"key": "team", "value": "a", "effect": "NoSchedule"}]
        odd = pod("odd", "1")
        odd["object"]["spec"]["containers"][0]["resources"]["requests"]["example.com/fpga"] = "1"
        claimed = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]
        for event in (
            node("n0", cpu="2"),
            node("n1", taints=taints),
            sick,
            pod("plain", "1"),
            pod("second", "2"),  # n1 has room, but also a taint
            pod(
                "tolerant",
                "1",
                tolerations=[{"key": "team", "operator": "Exists"}],
                affinity={"nodeAffinity": {hard: {"nodeSelectorTerms": [{"matchExpressions": [rule]}]}}},
            ),
            pod("near", "1", affinity=near),
            pod("stored", "1", volumes=claimed),
            pod("scratch", "1", volumes=[{"name": "v", "emptyDir": {}}]),
            odd,
        ):
            placer.take(event)
        scheduler.step()
        places = scheduler.placements().places
        assert places["default/tolerant"] == "n1" and {places.get(f"default/{n}") for n in ("plain", "scratch")} == {
            "n0"
        }
        assert "default/second" not in places and placer.waits.keys() == {
            "default/near",
            "default/stored",
            "default/odd",
        }
        assert placer.waits["default/odd"] == "no node offers example.com/fpga"
        fpga = node("n3")
        fpga["object"]["status"]["allocatable"]["example.com/fpga"] = "1"
        placer.take(fpga)  # what could not be stated is tried again with each new node
        scheduler.step()
        assert scheduler.placements().places["default/odd"] == "n3"


def bookmark(**annotations):
    return {
        "type": "BOOKMARK",
        "object": {"kind": "Pod", "metadata": {"resourceVersion": "9", "annotations": annotations}},
    }


GONE = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "too old resource version"}}
LISTED = {"k8s.io/initial-events-end": "true"}


def test_a_watch_stream_with_duplicates_deletions_and_lists_anew(start):
    with Scheduler(URL, transport=Wire(start(goals="borg"))) as scheduler:
        placer = PodPlacer(scheduler)

        def play(*events):
            for event in events:
                placer.take(event)
                if event["type"] in ("ADDED", "MODIFIED", "DELETED"):
                    placer.take(event)  # every event comes twice
            scheduler.step()
            list(placer.bindings())
            return scheduler.placements().places

        begun = play(node("n0"), node("n1"), bookmark(), pod("a", "3"), pod("b", "3"), pod("c", "1"))
        assert begun.keys() == {"default/a", "default/b", "default/c"}
        assert play(pod("c", "1", kind="DELETED"), bookmark()).keys() == {"default/a", "default/b"}
        # Without the watch a was deleted, b recreated, d added, n1 removed; nothing is dropped before the list ends.
        again = [node("n0"), pod("b", "3", uid="2"), pod("d", "1")]
        assert "default/a" in play(GONE, *again)
        assert play(bookmark(**LISTED)) == {"default/b": "n0", "default/d": "n0"}
        assert placer.pods == {"default/b": "2", "default/d": "1"} and placer.nodes.keys() == {"n0"}
        assert play(bookmark(**LISTED)).keys() == {"default/b", "default/d"}
        # A restarted adapter sees the jobs that it submitted before.
        placer = PodPlacer(scheduler)
        scheduler.remove_machine("n0")
        assert play(node("n0"), pod("b", "3", uid="2"), pod("d", "1")).keys() == {"default/b", "default/d"}
        with pytest.raises(ValueError, match="the watch ended: no right"):
            placer.take({"type": "ERROR", "object": {"kind": "Status", "code": 403, "message": "no right"}})
