"""A worker process: runs tasks one by one, each given by a line of JSON on standard input.

It answers with lines of JSON on its original standard output: ``stage`` when a stage of an instance begins (with the
record so far, so that the kind of a stopped instance is known), ``compiling`` when the compilation of loops begins or
ends, ``answer`` with the record of the best solution so far (already written to its file, so that it survives a kill),
``done`` with the final record.
Whatever libraries print goes to standard error. The process is killed when its parent ends.
"""

from __future__ import annotations

import contextlib
import copy
import ctypes
import importlib
import json
import os
import re
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flowlex.cli.memory_limits import explained, memory_limit, out_of_memory, refuse_changed
from flowlex.cli.result_record import Channel, blank, cut_off, fill
from flowlex.formulations.processor_clock import set_listener
from flowlex.instances.file_storage import json_value, read_head
from flowlex.instances.registered_systems import load, registered

if TYPE_CHECKING:
    from flowlex.instances.instance_base import Instance
    from flowlex.models.model_base import Solution


_PR_SET_PDEATHSIG = 1
#: The kind of an instance, where its file begins.
_KIND = re.compile(rb'"kind"\s*:\s*"([a-z0-9-]+)"')


def main(parent: int) -> None:
    """Serve the process with this id until standard input ends."""
    die_with_parent()
    os.register_at_fork(after_in_child=die_with_parent)  # engines may fork; no child outlives a killed run
    if os.getppid() != parent:
        return
    tasks, channel = os.fdopen(os.dup(0), "rb"), Channel(os.fdopen(os.dup(1), "wb"))
    os.dup2(2, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # libraries must not read our tasks
    set_listener(lambda on: channel.send("compiling", on=on))
    os.environ["RUST_BACKTRACE"] = "0"  # printing one when memory is exhausted deadlocks the library
    os.environ["FLOWLEX_QUIET_COMPILING"] = "1"  # the parent gets an event and prints it
    for line in tasks:
        channel.send("done", **run_task(json.loads(line), channel))


def _preload(task: dict[str, Any]) -> None:
    """Import what solving needs, outside the instance's limits: for its kind, or for all kinds if it is unknown."""
    from flowlex.instances.extensions import instance_class, kinds
    from flowlex.models.registry import model_class
    from flowlex.validation.certificates.verifier_interface import verifier_for

    if task["time_limit_s"] is not None or task.get("memory_limit_mb") is not None:
        for engine in ("highs", "network") if task["engine"] == "auto" else (task["engine"],):
            importlib.import_module(f"flowlex.formulations.engines.{engine}")
    head = read_head(Path(task["path"]))
    kind = _KIND.search(head)
    if task["path"].lower().removesuffix(".gz").endswith((".mps", ".lp")):
        wanted: tuple[str, ...] = ("problem",)
    else:
        wanted = (kind[1].decode(),) if kind else kinds() if head.lstrip().startswith(b"{") else ("min-cost-flow",)
    for name in wanted:
        with contextlib.suppress(ValueError):  # unknown kind or no model: reported when solving
            instance_class(name)
            model_class(name)
            verifier_for(name)


def die_with_parent() -> None:
    """Have Linux kill this process when its parent ends; do nothing on other systems."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def run_task(task: dict[str, Any], channel: Channel) -> dict[str, Any]:
    """Run a task, such as solving an instance; errors are reported in the answer.

    A task has ``instance``, ``path``, ``engine``, ``time_limit_s``, ``solution`` (path of the file to write, or None),
    and if given ``job`` (``subtask``, or what systems register) and ``memory_limit_mb``. To solve: ``settings``,
    ``gap``, ``compare``, ``display``, ``spare_threads``, ``log``, and if given ``solver``, ``threads``, ``seed``. The
    answer has ``record`` (see `flowlex.cli.result_record`), ``display`` (tables to print), ``usage`` (whether the
    options were invalid).
    """
    record = blank(task["instance"], task.get("simulator", task["engine"]))
    reply: dict[str, Any] = {"record": record, "display": {}, "usage": False, "answer": None}
    limit_mb = task.get("memory_limit_mb")
    try:
        if "job" in task:
            ours = {"subtask": "flowlex.cli.subtasks:subtask"}
            work = load((ours | registered("WORKER_TASKS"))[task["job"]])
        else:
            _preload(task)
            work = _solve
        with memory_limit(limit_mb):
            work(task, channel, reply)
    except MemoryError:
        message = out_of_memory(limit_mb)
        record |= {"status": "error", "message": message}
        if reply["answer"] is not None:
            record |= cut_off(reply["answer"], "memory limit", message)
    except Exception as error:  # an error of one instance must not end the batch
        record |= {"status": "error", "message": explained(error)}
        if reply["answer"] is not None and task["solution"] is not None:
            Path(task["solution"]).unlink(missing_ok=True)  # an intermediate answer before the failure
    if record["status"] == "error":  # libraries report lack of memory in their own words
        record["message"] = out_of_memory(limit_mb, str(record["message"])) or record["message"]
    del reply["answer"]
    return reply


def _solve(task: dict[str, Any], channel: Channel, reply: dict[str, Any]) -> None:
    from flowlex.cli.subtasks import distributed_subtasks
    from flowlex.instances.files import read_instance
    from flowlex.models.model_base import ModelError
    from flowlex.models.registry import model_class, read_options

    record = reply["record"]
    channel.send("stage", stage="reading", record=record)
    started = time.perf_counter()
    try:
        instance = read_instance(task["path"])
    finally:  # a file that changes while it is read rarely parses
        refuse_changed(task)
    loaded = time.perf_counter()
    record |= {"name": instance.name, "kind": instance.kind}
    record["seconds"]["load"] = loaded - started
    cls = model_class(instance.kind)
    record["model"] = cls.name
    try:
        options = read_options(instance.kind, task["settings"])
    except ModelError:
        reply["usage"] = True
        raise
    channel.send("stage", stage="solving", record=record)
    model = cls(instance, **options)
    built = time.perf_counter()
    limit = task["time_limit_s"]
    solver = _solver_options(task, None if limit is None else max(limit - (built - started), 0.001))

    def note(found: Solution) -> None:
        """Save an intermediate answer, so that it survives if the run is killed."""
        fill(so_far := copy.deepcopy(record), found, built - loaded)
        reply["answer"] = so_far
        channel.send("answer", record=so_far)  # first: a solution file must never exist without a reported answer
        if task["solution"] is not None:
            so_far["solution"] = found.save(task["solution"], file=task["instance"], force=True).name
            channel.send("answer", record=so_far)

    with distributed_subtasks(task):
        solution = model.solve(task["engine"], report=note, **solver)
    fill(record, solution, built - loaded)
    if str(solution.status) == "time_limit" and reply["answer"] is not None:
        record |= cut_off(reply["answer"], "time limit", solution.message)
        return
    if task["display"]:
        reply["display"] = _display(solution)
    if task["solution"] is not None and solution.certificate is not None:
        record["solution"] = solution.save(task["solution"], file=task["instance"], force=True).name
    if task["compare"]:
        channel.send("stage", stage="comparing", **reply)
        record["comparison"] = _compared(instance)


def _solver_options(task: dict[str, Any], left_s: float | None) -> dict[str, Any]:
    """Options of the solver; one thread if several instances are solved in parallel."""
    names = ("gap", "solver", "threads", "seed", "log")
    found: dict[str, Any] = {"time_limit_s": left_s} | {name: task[name] for name in names if task.get(name)}
    if task["spare_threads"] and task["engine"] != "network":  # it is always single-threaded
        found.setdefault("threads", 1)
    return found


def _compared(instance: Instance) -> dict[str, Any]:
    from flowlex.models.model_base import ModelError
    from flowlex.models.registry import compare

    try:
        frame = compare(instance)
    except ModelError as error:
        return {"message": str(error)}
    flat = frame.reset_index() if frame.index.name or frame.index.nlevels > 1 else frame
    return {"rows": json_value(flat.to_dict(orient="records"))}


def _display(solution: Solution) -> dict[str, Any]:
    from flowlex.cli.console_output import cells

    shown: dict[str, Any] = {}
    if solution.certificate is not None:
        shown["certificate"] = str(solution.certificate)
    if solution.status.has_answer:
        with contextlib.suppress(NotImplementedError):  # not every answer is a table
            shown["table"] = cells("Answer", solution.to_columns())
    return shown


if __name__ == "__main__":
    main(int(sys.argv[1]))
