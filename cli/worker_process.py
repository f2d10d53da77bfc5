"""A worker process: does one task after the other, each given by a line of JSON on standard input.

It answers on what was its standard output with lines of JSON: ``stage`` when a stage of an instance begins (with what
is known so far, so that a stopped instance still tells its kind), ``compiling`` when loops begin or end to be compiled,
``answer`` with the record of the best answer so far (in its solution file already, so that a killed one leaves it),
``done`` with the record.
Whatever libraries print goes to standard error. It dies with the process that started it.
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
from flowlex.formulations.processor_time import set_listener
from flowlex.instances.file_storage import json_value, read_head

if TYPE_CHECKING:
    from flowlex.instances.instance_base import Instance
    from flowlex.models.model_base import Solution


_PR_SET_PDEATHSIG = 1
#: The kind of an instance, where its file begins.
_KIND = re.compile(rb'"kind"\s*:\s*"([a-z0-9-]+)"')
#: What a task may ask for besides the solution of an instance: module and function, imported when it is asked for.
_JOBS = {
    "simulate": ("flowlex.cli.simulation_worker_tasks", "simulate_task"),
    "subtask": ("flowlex.cli.subtasks", "subtask"),
    "measure": ("flowlex.cli.simulation_worker_tasks", "measure_task"),
}


def main() -> None:
    """Serve until standard input ends."""
    parent = int(sys.argv[1])
    die_with_parent()
    os.register_at_fork(after_in_child=die_with_parent)  # engines may fork; nothing outlives a killed run
    if os.getppid() != parent:
        return
    tasks, channel = os.fdopen(os.dup(0), "rb"), Channel(os.fdopen(os.dup(1), "wb"))
    os.dup2(2, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # nothing may read what is meant for us
    set_listener(lambda on: channel.send("compiling", on=on))
    os.environ["RUST_BACKTRACE"] = "0"  # without memory, a library that prints one waits for itself
    os.environ["FLOWLEX_QUIET_COMPILING"] = "1"  # the parent gets an event and prints it
    for line in tasks:
        channel.send("done", **run_task(json.loads(line), channel))


def _preload(task: dict[str, Any]) -> None:
    """Import what solving needs, outside the instance's limits: by its kind, or where that is not seen for all."""
    from flowlex.instances.extensions import instance_class, kinds
    from flowlex.models.registry import model_class
    from flowlex.validation.certificates.verifier_interface import verifier_for

    importlib.import_module(f"flowlex.formulations.engines.{task['engine']}")
    head = read_head(Path(task["path"]))
    kind = _KIND.search(head)
    wanted = (kind[1].decode(),) if kind else kinds() if head.lstrip().startswith(b"{") else ("min-cost-flow",)
    for name in wanted:
        with contextlib.suppress(ValueError):  # no such kind, or none that has a model: said when it is solved
            instance_class(name)
            model_class(name)
            verifier_for(name)


def die_with_parent() -> None:
    """Ask Linux to kill this process when the one that made it ends; elsewhere nothing happens."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def run_task(task: dict[str, Any], channel: Channel) -> dict[str, Any]:
    """Do a task, such as to solve an instance; whatever goes wrong becomes part of the answer.

    A task has ``instance``, ``path``, ``engine``, ``time_limit_s``, ``solution`` (path of the file to write, or None),
    and if given ``job`` (see `_JOBS`) and ``memory_limit_mb``. To solve: ``settings``, ``gap``, ``compare``,
    ``display``, ``spare_threads``, ``log``, and if given ``solver``, ``threads``, ``seed``. The answer has ``record``
    (see `flowlex.cli.result_record`), ``display`` (tables for a person), ``usage`` (whether the options were wrong).
    """
    record = blank(task["instance"], task.get("simulator", task["engine"]))
    reply: dict[str, Any] = {"record": record, "display": {}, "usage": False, "answer": None}
    limit_mb = task.get("memory_limit_mb")
    try:
        if "job" in task:
            module, function = _JOBS[task["job"]]
            work = getattr(importlib.import_module(module), function)
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
    except Exception as error:  # a batch goes on whatever one instance does
        record |= {"status": "error", "message": explained(error)}
        if reply["answer"] is not None and task["solution"] is not None:
            Path(task["solution"]).unlink(missing_ok=True)  # an answer on the way to a defect
    if record["status"] == "error":  # libraries say it in words of their own
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
    finally:  # a file that changes while it is read is rarely an instance
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
        """Write an answer down before the end, so that a killed run leaves it."""
        fill(so_far := copy.deepcopy(record), found, built - loaded)
        reply["answer"] = so_far
        channel.send("answer", record=so_far)  # first: a file that is there is an answer that is known
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
    """Options of the solver; one thread where instances are solved side by side."""
    names = ("gap", "solver", "threads", "seed", "log")
    found: dict[str, Any] = {"time_limit_s": left_s} | {name: task[name] for name in names if task.get(name)}
    if task["spare_threads"] and task["engine"] != "network":  # which never uses more
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
    main()
