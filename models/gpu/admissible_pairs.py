"""Admissible pairs (task, GPU): the variables of a round, and their placeholder in large rounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NoReturn, cast

import numpy as np

from flowlex.formulations.linear_program import LinearProgram
from flowlex.formulations.program_arrays import Integers
from flowlex.instances.gpu import GpuArrays
from flowlex.models.gpu.round_eligibility import Round
from flowlex.models.gpu.statement import pair_count, pairs_of
from flowlex.models.solution import ModelError
from flowlex.models.statement.rows_and_objectives import Statement
from flowlex.models.statement.variable_labels import Index

#: Numbers of pairs up to which a changed round is always solved by pairs, and beyond which it never is.
SMALL, LARGEST = 20_000, 2_000_000


def labels_of(view: GpuArrays, task: Integers, gpu: Integers) -> Index:
    """Labels of pairs: task, GPU, job, node and rack."""
    node = view.gpu_node[gpu]
    return Index.coded(
        task=(view.task_names, task),
        gpu=(view.gpu_names, gpu),
        job=(view.job_names, view.task_job[task]),
        node=(view.node_names, node),
        rack=(view.rack_names, view.node_rack[node]),
    ).named_by("task", "gpu")


class _Codes(Mapping[str, Integers]):
    """Labels of all pairs, computed on first access."""

    def __init__(self, plan: Round) -> None:
        self._plan = plan

    @cached_property
    def _made(self) -> Mapping[str, Integers]:
        return labels_of(self._plan.view, *pairs_of(self._plan)).codes

    def __getitem__(self, level: str) -> Integers:
        return self._made[level]

    def __iter__(self) -> Iterator[str]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)


class _NoRows:
    """Placeholder for the program of a statement that is too large to be built."""

    def __init__(self, why: str) -> None:
        self._why = why

    def __getattr__(self, name: str) -> NoReturn:
        raise ModelError(f"{self._why}, so that its rows are not made one by one; look at a smaller round")


@dataclass(frozen=True, eq=False)
class LargeStatement(Statement):
    """A statement with labels of variables but without rows; ``why``: the reason."""

    why: str = ""

    @classmethod
    def of(cls, plan: Round) -> LargeStatement:
        """The statement of a large round."""
        why = f"the statement has {pair_count(plan)} pairs of tasks and GPUs, more than {LARGEST}"
        levels = labels_of(plan.view, np.zeros(0, np.int64), np.zeros(0, np.int64)).levels
        index = Index(levels, _Codes(plan), pair_count(plan), ("task", "gpu"))
        return cls(cast(LinearProgram, _NoRows(why)), {"x": index}, why=why)
