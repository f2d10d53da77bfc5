"""Rounds of GPU assignment as a core, in the paper's two stages: nodes and jobs report, a round merges and decides.

Reports of nodes and jobs form one instance; `GpuAssignment` solves it with proof. The decision lists which tasks start
where, which stop, and why each waiting task waits.

Source: Tang et al. 2022, the system's rounds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from flowlex.instances.gpu import GpuInstance, Job, Node, Running, Shard, Task
from flowlex.instances.gpu_policy import GpuPolicy as Policy
from flowlex.models.gpu.model import GpuAssignment
from flowlex.models.gpu.solution import GpuSolution
from flowlex.systems.scheduler.documents import Document, RefusedEvent, UnknownTask
from flowlex.systems.scheduler.event_log import GPU_EVENT, JobPart, NodeGone, NodeReport, TaskEnd, Transfer, Withdrawn
from flowlex.systems.scheduler.measured_bandwidth import LINKS, Bandwidths


class GpuCore:
    """See `flowlex.systems.scheduler.documents.Core`.

    ``policy``: policy of the rounds. ``bandwidths``: given rates, used until enough transfers are reported.
    ``most_jobs``: most jobs in a round, in order of arrival; the others queue. None: all.
    """

    def __init__(self, policy: Policy, bandwidths: Bandwidths, most_jobs: int | None = None) -> None:
        self.most_jobs: int | None
        self.policy, self.bandwidths, self.most_jobs = policy, bandwidths, most_jobs
        self.pending, self.rounds, self.now_s = 0, 0, 0.0
        self.nodes: dict[str, Node] = {}
        self.jobs: dict[str, dict[str, Task]] = {}
        self.job_of: dict[str, str] = {}
        self.running: dict[str, tuple[str, float]] = {}  # GPU and start by task
        self.refused: dict[str, str] = {}  # why a task waits, as of the last round
        self._why: dict[str, str] = {}  # why a task stopped since the last round

    @classmethod
    def continued(cls, options: Document, state: bytes | None) -> GpuCore:
        """Continue from a snapshot, or (None) begin as the options of the first start say."""
        rates = Bandwidths({link: options[f"{link}_mb_per_s"] for link in LINKS})
        core = cls(Policy(options["policy"]), rates, options["most_jobs"])
        return core if state is None else core.load(state)

    def solve_ahead(self) -> None:
        """Nothing can be done ahead."""

    def foresee(self) -> None:
        """Questions share nothing."""

    # Events ----------------------------------------------------------------------------------------------------
    def take(self, event: Document, at_s: float) -> None:
        """Process the report of a node or a job."""
        match GPU_EVENT.validate_python(event):
            case NodeReport(node=node):
                self._put_node(node)
            case NodeGone(node=name):
                self._known(self.nodes, name, "node")
                del self.nodes[name]
                self._stop_lost(f"node {name!r} has gone")
            case JobPart(job=job):
                self._put_job(job)
            case Withdrawn(job=name):
                for task in self._known(self.jobs, name, "job"):
                    self._drop(task)
                del self.jobs[name]
            case TaskEnd(task=task, failed=failed):
                self._end(task, failed)
            case Transfer() as transfer:
                self._note(transfer)
        self.pending += 1
        self.now_s = max(self.now_s, at_s)

    def _known(self, things: Mapping[str, Any], name: str, what: str) -> Any:
        if name not in things:
            raise RefusedEvent(f"no {what} is named {name!r}; report it first, or it has gone")
        return things[name]

    def _put_node(self, node: Node) -> None:
        names = [gpu.name for gpu in node.gpus]
        elsewhere = {
            gpu.name: other.name for other in self.nodes.values() if other.name != node.name for gpu in other.gpus
        }
        for name in names:
            if name in elsewhere or names.count(name) > 1:
                raise RefusedEvent(
                    f"GPU {name!r} is on node {elsewhere.get(name, node.name)!r} already; names are unique"
                )
        self.nodes[node.name] = node
        self._stop_lost(f"node {node.name!r} reports another GPU")

    def _stop_lost(self, why: str) -> None:
        """Return to waiting the tasks whose GPU is gone or too small."""
        memory = {gpu.name: gpu.memory_gb for node in self.nodes.values() for gpu in node.gpus}
        for task, (gpu, _) in list(self.running.items()):
            if memory.get(gpu, 0.0) < self._task(task).memory_gb:
                del self.running[task]
                self._why[task] = why

    def _put_job(self, job: Job) -> None:
        old = self.jobs.get(job.name, {})
        seen: set[str] = set()
        for task in job.tasks:
            if task.running is not None:
                raise RefusedEvent(f"task {task.name!r}: leave 'running' out; the service places tasks")
            if self.job_of.get(task.name, job.name) != job.name or task.name in seen:
                raise RefusedEvent(f"task {task.name!r} is here already; names of tasks are unique")
            if task.name in self.running:
                raise RefusedEvent(f"task {task.name!r} runs; a part holds what waits")
            seen.add(task.name)
        if not job.tasks:
            raise RefusedEvent(f"job {job.name!r} submits no task; withdraw it instead")
        for name in [name for name in old if name not in self.running]:
            self._drop(name)
        kept = {name: task for name, task in old.items() if name in self.running}
        self.jobs[job.name] = kept | {task.name: task for task in job.tasks}
        self.job_of |= {task.name: job.name for task in job.tasks}

    def _end(self, task: str, failed: bool) -> None:
        if task not in self.running:
            raise RefusedEvent(f"task {task!r} does not run, so it cannot end")
        if failed:
            del self.running[task]
            self._why[task] = "it failed"
            return
        tasks = self.jobs[self.job_of[task]]
        del tasks[task]
        if not tasks:
            del self.jobs[self.job_of[task]]
        self._drop(task)

    def _drop(self, task: str) -> None:
        del self.job_of[task]
        for book in (self.running, self.refused, self._why):
            book.pop(task, None)

    def _note(self, transfer: Transfer) -> None:
        source, target = (self._known(self.nodes, name, "node") for name in (transfer.source, transfer.target))
        link = "disk" if source is target else "rack" if source.rack == target.rack else "between_racks"
        self.bandwidths.note(link, transfer.size_mb, transfer.seconds)

    def _task(self, name: str) -> Task:
        return self.jobs[self.job_of[name]][name]

    # Rounds ----------------------------------------------------------------------------------------------------
    def decide(self, at_s: float) -> Document:
        """Hold a round."""
        jobs, refused = self._merged(at_s)
        placed: dict[str, str] = {task: gpu for task, (gpu, _) in self.running.items()}
        solution: GpuSolution | None = None
        if jobs and any(node.gpus for node in self.nodes.values()):
            solution = self._solve(jobs)
            view, gpus = solution.placement.view, solution.gpu.tolist()
            placed = {task: view.gpu_names[gpu] for task, gpu in zip(view.task_names, gpus, strict=True) if gpu >= 0}
            reasons = zip(view.task_names, solution.reasons(), strict=True)
            refused |= {task: reason for task, reason in reasons if reason}
        at = {gpu.name: node.name for node in self.nodes.values() for gpu in node.gpus}
        decision: Document = {
            "number": self.rounds + 1,
            "placed": [[task, gpu, at[gpu]] for task, gpu in placed.items() if task not in self.running],
            "stopped": [[task, gpu, refused[task]] for task, (gpu, _) in self.running.items() if task not in placed],
            "waiting": [[task, self._why.get(task, reason)] for task, reason in refused.items()],
            "transfer_s": None if solution is None else float(solution.objective or 0),
            "bandwidths": self.bandwidths.rates(),
        }
        self.redo(decision, at_s)
        return decision

    def redo(self, decision: Document, at_s: float) -> None:
        """Apply a round's decision."""
        for task, *_ in decision["stopped"]:
            del self.running[task]
        for task, gpu, _ in decision["placed"]:
            self.running[task] = (gpu, at_s)
        self.refused = {task: reason for task, reason in decision["waiting"]}
        self._why.clear()
        self.rounds, self.pending, self.now_s = decision["number"], 0, at_s

    def _merged(self, at_s: float) -> tuple[list[Job], dict[str, str]]:
        """Return the jobs of a round, and the tasks that no round could place, with the reason."""
        largest = max((gpu.memory_gb for node in self.nodes.values() for gpu in node.gpus), default=0.0)
        jobs, refused = [], {}
        for number, (name, tasks) in enumerate(self.jobs.items()):
            queued = self.most_jobs is not None and number >= self.most_jobs
            offered = []
            for task in tasks.values():
                if task.name in self.running:
                    gpu, since = self.running[task.name]
                    held = Running(gpu=gpu, elapsed_s=max(0.0, at_s - since))
                    offered.append(self._readable(task).model_copy(update={"running": held}))
                elif reason := self._hopeless(task, largest):
                    refused[task.name] = reason
                elif queued:
                    refused[task.name] = f"its job queues: {self.most_jobs} jobs share the cluster at a time"
                else:
                    offered.append(self._readable(task))
            if offered:
                jobs.append(Job(name=name, tasks=tuple(offered)))
        return jobs, refused

    def _hopeless(self, task: Task, largest: float) -> str:
        if not largest:
            return "no node reports a GPU"
        if task.memory_gb > largest:
            return f"it needs {task.memory_gb:g} GB; the largest GPU has {largest:g} GB"
        for number, shard in enumerate(task.shards):
            if not any(node in self.nodes for node in shard.replicas):
                return f"no node is there that holds its shard {shard.name or number!r}"
        return ""

    def _readable(self, task: Task) -> Task:
        """Return a task with only the present replicas; a running task has read its data."""
        shards = tuple(self._present(task.shards))
        return task if shards == task.shards else task.model_copy(update={"shards": shards})

    def _present(self, shards: tuple[Shard, ...]) -> Iterator[Shard]:
        for shard in shards:
            here = tuple(node for node in dict.fromkeys(shard.replicas) if node in self.nodes)
            if here:
                yield shard if here == shard.replicas else shard.model_copy(update={"replicas": here})

    def _solve(self, jobs: list[Job]) -> GpuSolution:
        rates = {f"{link}_mb_per_s": rate for link, rate in self.bandwidths.rates().items()}
        nodes = tuple(self.nodes.values())
        instance = GpuInstance(name=f"round {self.rounds + 1}", nodes=nodes, jobs=tuple(jobs), **rates)
        solution = GpuAssignment(instance, policy=self.policy).solve("network")
        solution.require_answer()
        return solution

    # Reading ---------------------------------------------------------------------------------------------------
    def task(self, name: str) -> Document:
        """Return where a task runs, or why it waits."""
        if (job := self.job_of.get(name)) is None:
            raise UnknownTask(name)
        if name in self.running:
            return {"task": name, "job": job, "gpu": self.running[name][0]}
        reason = self._why.get(name) or self.refused.get(name, "no round since it came")
        return {"task": name, "job": job, "reason": reason}

    def placements(self) -> Document:
        """GPU by running task."""
        return {"number": self.rounds, "places": {task: gpu for task, (gpu, _) in self.running.items()}}

    def nodes_of(self, tasks: Sequence[str]) -> dict[str, str]:
        """The node of each of these tasks that runs."""
        node_of = {gpu.name: node.name for node in self.nodes.values() for gpu in node.gpus}
        return {name: node_of[self.running[name][0]] for name in tasks if name in self.running}

    def rates(self) -> dict[str, float]:
        """Return the rates in MB/s for the next round."""
        return self.bandwidths.rates()

    def facts(self) -> dict[str, float]:
        """Sizes and rates, for Prometheus."""
        rates = {f"{link}_mb_per_s": rate for link, rate in self.bandwidths.rates().items()}
        gpus = sum(len(node.gpus) for node in self.nodes.values())
        waiting = len(self.job_of) - len(self.running)
        sizes = {"nodes": len(self.nodes), "gpus": gpus, "jobs": len(self.jobs), "rounds": self.rounds}
        return {**sizes, "tasks_running": len(self.running), "tasks_waiting": waiting, **rates}

    def save(self) -> bytes:
        """Return everything as one JSON document."""
        document = {
            "rounds": self.rounds,
            "pending": self.pending,
            "now_s": self.now_s,
            "nodes": [node.model_dump(mode="json") for node in self.nodes.values()],
            "jobs": {
                name: [task.model_dump(mode="json") for task in tasks.values()] for name, tasks in self.jobs.items()
            },
            "running": self.running,
            "refused": self.refused,
            "why": self._why,
            "bandwidths": self.bandwidths.document(),
        }
        return json.dumps(document).encode()

    def load(self, state: bytes) -> GpuCore:
        """Take what `save` wrote.

        Raises `ValueError`: it is damaged.
        """
        try:
            document = json.loads(state)
            self.rounds, self.pending, self.now_s = (document[key] for key in ("rounds", "pending", "now_s"))
            self.nodes = {node["name"]: Node.model_validate(node) for node in document["nodes"]}
            for name, tasks in document["jobs"].items():
                self.jobs[name] = {task["name"]: Task.model_validate(task) for task in tasks}
                self.job_of |= dict.fromkeys(self.jobs[name], name)
            self.running = {task: (gpu, since) for task, (gpu, since) in document["running"].items()}
            self.refused, self._why = document["refused"], document["why"]
            self.bandwidths = Bandwidths.of(document["bandwidths"])
        except (KeyError, TypeError, ValueError, ValidationError) as error:
            raise ValueError(f"damaged state of GPU rounds ({type(error).__name__}: {error})") from error
        return self
