"""The importer of Google's trace: events, and what is there at one time."""

import gzip
from collections import Counter

import pytest

from flowlex.instances import InstanceError
from flowlex.systems.traces import google_snapshot, google_trace_events


def write_trace(root):
    """Tables in the published format: headerless, gzip, empty cells for what is unknown."""
    tables = {
        "machine_attributes": ["0,7,kernel,5.1,0", "0,7,gone,1,0", "0,7,gone,1,1"],
        "machine_events": [
            "0,7,0,plat,0.5,0.25",
            "0,8,0,plat,1,1",
            "900000000,8,1,plat,1,1",
            "950000000,7,2,plat,0.25,1",
        ],
        "task_events": [
            "600000000,,100,0,,0,user,3,9,0.1,0.1,0.0001,0",
            "600000000,,100,1,,0,user,3,9,0.1,0.1,0.0001,0",
            "600000001,,100,0,7,1,user,3,9,0.1,0.1,0.0001,0",
            "700000000,,100,0,7,2,user,3,9,0.1,0.1,0.0001,0",
            "700000001,,100,0,,0,user,3,9,0.1,0.1,0.0001,0",
            "800000000,,100,0,7,4,user,3,9,0.1,0.1,0.0001,0",
            "800000000,,101,0,,0,user,0,0,,,,",
            "9223372036854775807,,101,0,,5,user,0,0,,,,",
        ],
        "job_events": ["600000000,,100,0,user,3,name,logical", "960000000,,100,5,user,3,name,logical"],
    }
    for table, rows in tables.items():
        folder = root / table
        folder.mkdir(exist_ok=True)
        name = folder / "part-00000-of-00001.csv.gz"
        name.write_bytes(gzip.compress(("\n".join(rows) + "\n").encode()))
    return root


def test_google_trace(tmp_path):
    events = list(google_trace_events(write_trace(tmp_path), slots_per_unit=24))
    kinds = [event.event for event in events]
    assert kinds == [
        *("add_machine", "add_machine", "step", "submit", "step", "finish", "submit", "step"),
        *("remove_machine", "set_slots", "step", "cancel", "step"),
    ]
    first, second = events[0].machine, events[1].machine
    assert (first.name, first.slots, first.labels) == ("7", 12, ("kernel=5.1", "platform=plat"))
    assert second.slots == 24
    job = events[3].job
    assert (job.name, [t.name for t in job.tasks], job.priority) == ("100", ["100/0", "100/1"], 3)
    assert events[3].at_s == 600.0
    assert events[6].job.priority == 12
    assert events[-2].task == "100/1"  # the end of its job ends the task that the task table forgot
    assert len(list(google_trace_events(tmp_path, until_s=700))) < len(events)


def test_google_tasks_that_must_run_on_different_machines(tmp_path):
    write_trace(tmp_path)
    part = tmp_path / "task_events" / "part-00000-of-00001.csv.gz"
    rows = [
        "600000000,,100,0,,0,user,3,9,0.1,0.1,0.0001,1",
        "600000000,,100,1,,0,user,3,9,0.1,0.1,0.0001,1",
        "600000000,,102,0,,0,user,3,9,0.1,0.1,0.0001,",
        "700000000,,100,0,7,3,user,3,9,0.1,0.1,0.0001,1",
        "700000001,,100,0,,0,user,3,9,0.1,0.1,0.0001,true",
    ]
    part.write_bytes(gzip.compress(("\n".join(rows) + "\n").encode()))

    def rules(**options):
        events = google_trace_events(tmp_path, **options)
        return [(e.job.name, e.job.different_machines) for e in events if e.event == "submit"]

    assert rules() == [("100", "100"), ("102", None), ("100#2", "100")]
    assert rules(different_machines=False) == [("100", None), ("102", None), ("100#2", None)]
    part.write_bytes(gzip.compress(b"600000000,,100,0,,0,user,3,9,0.1,0.1,0.0001,2\n"))
    with pytest.raises(InstanceError, match="different machines is '2', not 0 or 1"):
        rules()


def write_part(root, table, *rows):
    (root / table).mkdir(exist_ok=True)
    (root / table / "part-00000-of-00001.csv.gz").write_bytes(gzip.compress(("\n".join(rows) + "\n").encode()))


def test_google_constraints_requests_and_updates(tmp_path):
    write_trace(tmp_path)
    write_part(tmp_path, "machine_attributes", "0,7,clock,5,0", "0,8,clock,9,0", "0,8,ssd,1,0", "9,8,ssd,,1")
    rows = [(0, "clock", "5"), (1, "clock", "5"), (2, "clock", "9"), (3, "clock", "5"), (0, "ssd", ""), (1, "ssd", "")]
    rows += [(2, "clock", "1"), (3, "clock", "9")]
    constraints = (f"600000000,200,{k},{operator},{name},{value}" for k, (operator, name, value) in enumerate(rows))
    write_part(tmp_path, "task_constraints", *constraints, "650000000,200,0,1,clock,9", "650000001,300,0,0,clock,9")
    arrivals = (f"600000000,,200,{k},,0,user,3,,{0.1 if k else ''},0.2,0.0001,0" for k in range(len(rows)))
    more = [
        "610000000,,200,0,7,7,user,3,4,0.1,0.2,,0",  # an update of the priority, and one of the requests
        "610000001,,200,1,7,8,user,3,4,0.3,0.2,,0",
        "650000001,,300,0,7,1,user,3,9,0.1,0.1,,0",  # scheduled, never submitted
        "650000002,,301,0,7,4,user,3,9,0.1,0.1,,0",  # ends, never submitted
    ]
    write_part(tmp_path, "task_events", *arrivals, *more)
    counts = Counter()
    events = list(google_trace_events(tmp_path, counts=counts))
    jobs = {e.job.name: e.job for e in events if e.event == "submit"}
    asked = [[(c.kind, c.resources) for c in task.constraints] for task in jobs["200"].tasks]
    assert asked == [
        [("required", ("clock=5",))],
        [("forbidden", ("clock=5",))],
        [("forbidden", ("clock=9",))],
        [("required", ("clock=9",))],
        [("forbidden", ("ssd=1",))],
        [("required", ("ssd=1",))],
        [("forbidden", ("clock=5", "clock=9"))],  # less than 1: only machines without a clock
        [("required", ("clock > 9",))],  # no machine of the trace
    ]
    assert [task.demands for task in jobs["200"].tasks][:2] == [{"memory": 0.2}, {"cpu": 0.1, "memory": 0.2}]
    assert jobs["200"].priority == 12 and jobs["300"].tasks[0].constraints[0].resources == ("clock=9",)
    assert [(e.job, e.priority) for e in events if e.event == "set_priority"] == [("200", 8)]
    assert {what: count for what, count in counts.items() if count} == {
        "empty priorities: the least": 8,
        "updates of priority, of all tasks that arrived together": 1,
        "updates without effect here": 1,
        "constraints of tasks that are in already": 1,
        "tasks scheduled but not submitted: they arrive then": 1,
        "ends and evictions of tasks that are not in": 1,
        "attributes of machines that are in already": 1,
    }
    write_part(tmp_path, "task_constraints", "600000000,200,0,7,clock,5")
    with pytest.raises(InstanceError, match="comparison operator 7"):
        list(google_trace_events(tmp_path))


def test_damaged_trace(tmp_path):
    with pytest.raises(InstanceError, match="no task_events table"):
        google_trace_events(tmp_path)
    write_trace(tmp_path)
    part = tmp_path / "machine_events" / "part-00000-of-00001.csv.gz"
    whole = part.read_bytes()
    for text, message in (
        ("0,7,0,plat,0.5\n", "line 1: 5 columns, machine_events has 6"),
        ("0,7,0,plat,0.5,1\nnow,7,0,plat,1,1\n", "line 2: no time"),
        ("0,7,9,plat,0.5,1\n", "line 1: not a row of this table .machine event type 9"),
    ):
        part.write_bytes(gzip.compress(text.encode()))
        with pytest.raises(InstanceError, match=message):
            list(google_trace_events(tmp_path))
    part.write_bytes(whole[:-9])
    with pytest.raises(InstanceError, match="damaged"):
        list(google_trace_events(tmp_path))


def test_a_google_trace_at_one_time_has_capacities(tmp_path):
    folder = write_trace(tmp_path)
    early, late = google_snapshot(folder, 650), google_snapshot(folder, 955)
    assert [(m.name, dict(m.capacity)) for m in early.machines] == [
        ("7", {"cpu": 0.5, "memory": 0.25}),
        ("8", {"cpu": 1.0, "memory": 1.0}),
    ]
    assert [task.name for task in early.tasks] == ["100/0", "100/1"] and {m.slots for m in early.machines} == {110}
    assert [dict(m.capacity) for m in late.machines] == [{"cpu": 0.25, "memory": 1.0}]  # one left, one changed
    assert [task.name for task in late.tasks] == ["100/1", "101/0"]
    assert len(google_snapshot(folder, 650, most_jobs=0).jobs) == 0
    with pytest.raises(InstanceError, match="slots is 0; a machine needs at least 1"):
        google_snapshot(folder, 650, slots=0)
    with pytest.raises(InstanceError, match="no machine is there after -1 s"):
        google_snapshot(folder, -1)
