"""The jobs J1-J37 with which the GPU-assignment paper measures its testbed, as data.

Source: Tang, Zhu, Mao, Fu, Li, Journal of Software 33(12), 2022, table of workloads. What the paper does not
give is reconstructed here: the size of an image (that of a common benchmark set) and the GPU memory a task
needs (every task fits every GPU of the testbed).
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["PaperJob", "paper_jobs"]

#: Reconstructed: GPU memory of every task; the paper's GPUs have 10 GB.
_MEMORY_GB = 8.0
#: Reconstructed: a photograph of the COCO set has about 0.16 MB.
_IMAGE_MB = 0.16
_IMAGES = 10_000

#: Kind of job, the shards (name, MB) that each task reads, and the tasks of each job of that kind.
_TABLE: tuple[tuple[str, tuple[tuple[str, float], ...], tuple[int, ...]], ...] = (
    ("matrix multiply", (("A", 1000.0), ("B", 1000.0)), (6, 10, 15, 20)),
    ("matrix multiply, thin B", (("A", 1000.0), ("B", 60.0)), (8, 10, 20, 30)),
    ("sparse integer occurrence", (("part", 3000.0),), (5, 6, 8, 10, 15, 20, 30, 60)),
    ("prime test", (("part", 2000.0),), (4, 8, 10, 15, 20, 30, 40, 60)),
    ("string sort", (("part", 2000.0),), (5, 6, 8, 10, 30, 60)),
    ("k-means", (("points", 500.0),), (5, 8, 10)),
    ("Yolo v3", (), (5, 10, 20)),
    ("sparse matrix", (("part", 28.0),), (3,)),
)


@dataclass(frozen=True)
class PaperJob:
    """One job of the paper's table.

    Attributes
    ----------
    name, kind
        ``J1`` to ``J37``, and what it computes.
    tasks
        Tasks that read input and can start at once. (The add tasks that follow the multiply tasks of J1-J4,
        and the CPU reduce of J9-J16, read no input of their own and are not counted.)
    shards
        (name, size in MB) of what each task reads.
    memory_gb
        GPU memory of each task (reconstructed).
    """

    name: str
    kind: str
    tasks: int
    shards: tuple[tuple[str, float], ...]
    memory_gb: float

    @property
    def input_mb(self) -> float:
        """What all tasks read, in MB."""
        return self.tasks * sum(size for _, size in self.shards)


def paper_jobs() -> tuple[PaperJob, ...]:
    """Return J1 to J37 in order; the inputs of J1-J36 sum to the paper's 1.3 TB within 5 %."""
    jobs: list[PaperJob] = []
    for kind, shards, counts in _TABLE:
        for tasks in counts:
            reads = shards or (("images", _IMAGE_MB * _IMAGES / tasks),)
            jobs.append(PaperJob(f"J{len(jobs) + 1}", kind, tasks, reads, _MEMORY_GB))
    return tuple(jobs)
