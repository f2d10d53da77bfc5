"""The answer of a problem: values by label, objectives with what is proven of them, duals, slack, certificate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from flowlex.formulations.language import problem_document
from flowlex.formulations.language.exact_units import to_floats
from flowlex.formulations.language.labels import StatementError, known, nearest
from flowlex.formulations.language.statement import RowBlock, Statement
from flowlex.formulations.lexicographic.branch_and_bound_leaves import StagesOutcome
from flowlex.formulations.lexicographic.scaling import ScaledOutcome
from flowlex.formulations.program_arrays import Floats
from flowlex.models.solution import Solution
from flowlex.validation.certificates.certificate import Certificate
from flowlex.validation.certificates.verifier_interface import VERSION
from flowlex.validation.proofs.checker import Checker, Verdict
from flowlex.validation.proofs.exact_program import Exact, ExactProgram
from flowlex.validation.proofs.proof import Proof, number, to_document

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


class ProblemSource:
    """What a solution of a problem in memory says of its source."""

    kind = "problem"
    changes = None

    def __init__(self, problem: Statement) -> None:
        self._problem = problem

    @property
    def name(self) -> str:
        """Name of the problem."""
        return self._problem.name

    @cached_property
    def fingerprint(self) -> str:
        """Of everything that counts in the problem."""
        return problem_document.fingerprint(self._problem)


@dataclass(frozen=True)
class StageAnswer:
    """One objective of an answer.

    Attributes
    ----------
    name, value
        Of the objective.
    bound
        What is proven: no answer is better (among the optima of the objectives before). None if nothing is.
    quoted
        The bound that the solver states, where it goes beyond what is proven.
    proven
        Whether the value is proven optimal.
    given_away
        How much worse the objective became for later ones, at most its ``within``.
    """

    name: str
    value: float | int
    bound: float | int | None
    quoted: float | None = None
    proven: bool = False
    given_away: float | int = 0
    #: Value and bound as fractions.
    exact: tuple[Fraction, Fraction | None] = field(default=(Fraction(0), None), repr=False)


class StageAnswers(dict[str, StageAnswer]):
    """Objectives by name; ``stages[0]`` is the first."""

    def __getitem__(self, key: str | int) -> StageAnswer:
        if isinstance(key, int):
            if not -len(self) <= key < len(self):
                raise StatementError(f"there is no objective {key}; there are {len(self)}")
            return list(self.values())[key]
        if key not in self:
            raise StatementError(nearest("objective", key, self))
        return super().__getitem__(key)


class SeriesByName(Mapping[str, "pd.Series[Any]"]):
    """Series by name of the rows, made when asked for; an unknown name raises with the nearest one."""

    def __init__(self, blocks: Mapping[str, RowBlock], values: Mapping[str, Floats], none: str) -> None:
        self._blocks, self._values, self._none = blocks, values, none
        self._made: dict[str, pd.Series[Any]] = {}

    def __getitem__(self, name: str) -> pd.Series[Any]:
        if name not in self._values:
            raise StatementError(nearest("rows named", name, self) if self else self._none)
        if name not in self._made:
            import pandas as pd

            index = self._blocks[name].index.to_pandas()
            self._made[name] = pd.Series(self._values[name], index=index, name=name)
        return self._made[name]

    def get(self, name: str, default: Any = None) -> Any:
        """The series of a name, or the default."""
        try:
            return self[name]
        except StatementError:
            return default

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return repr(dict(self))


@dataclass(frozen=True, kw_only=True, eq=False)
class ProblemSolution(Solution):
    """What `flowlex.Problem.solve` returns.

    ``solution["x"]`` are the values of the variables ``x`` that are not 0, by label; ``solution.values("x")`` all.
    """

    problem: Statement = field(repr=False)
    numbers: Floats | None = field(default=None, repr=False)
    exact: Exact | None = field(default=None, repr=False)
    program: ExactProgram | None = field(default=None, repr=False)
    found: Proof = field(default_factory=Proof, repr=False)
    stages: Mapping[str, StageAnswer] = field(default_factory=StageAnswers)  # type: ignore[assignment]
    #: The model whose statement this is, if any: its table and picture are the answer's.
    of_model: Any = field(default=None, repr=False)

    def values(self, name: str) -> pd.Series[Any]:
        """Values of all variables of a name, by label.

        Parameters
        ----------
        name
            Of the variables.

        Raises
        ------
        StatementError
            There are no such variables.
        ModelError
            There is no answer.
        """
        import pandas as pd

        self.require_answer()
        assert self.numbers is not None
        block = known("variables named", name, self.problem.blocks)
        values: Any = self.numbers[block.columns]
        if len(block.integer) and block.integer.all() and np.abs(values).max(initial=0) < 2.0**62:
            values = np.rint(values).astype(np.int64)
        return pd.Series(values, index=block.index.to_pandas(), name=name)

    def __getitem__(self, name: str) -> pd.Series[Any]:
        every = self.values(name)
        return every[every != 0]

    def to_frame(self, name: str | None = None) -> pd.DataFrame:
        """Values that are not 0 as a table.

        Parameters
        ----------
        name
            Of the variables, with their labels and those that follow as columns; None: all variables, one row each.
        """
        import pandas as pd

        self.require_answer()
        if name is None and self.of_model is not None:
            table = self.of_model.answer(self)
            if table is not None:
                found: pd.DataFrame = table
                return found
        if name is not None:
            every = self.values(name)
            index = self.problem.blocks[name].index
            table = pd.DataFrame({level: index.labels(level) for level in index.names} | {name: every.to_numpy()})
            return table[table[name] != 0].reset_index(drop=True)
        return pd.DataFrame(dict(self._columns()))

    def _columns(self) -> Mapping[str, Any]:
        table = None if self.of_model is None else self.of_model.answer(self)
        if table is not None:
            plain = table.reset_index() if any(name is not None for name in table.index.names) else table
            return {str(name): plain[name].tolist() for name in plain.columns}
        assert self.numbers is not None
        variables: list[str] = []
        labels: list[str] = []
        values: list[float] = []
        for block in self.problem.blocks.values():
            mine = self.numbers[block.columns]
            used = np.flatnonzero(mine)
            variables += [block.name] * len(used)
            labels += block.index.texts(used)
            values += mine[used].tolist()
        return {"variable": variables, "label": labels, "value": [int(v) if v == int(v) else v for v in values]}

    @cached_property
    def slack(self) -> SeriesByName:
        """Distance of each row from its side, by name and label; of an equation how far it is missed."""
        self.require_answer()
        x = self.numbers
        assert x is not None
        found = {}
        for name, block in self.problem.rows.items():
            values = to_floats(block.values, block.unit) * x[block.columns]
            gap = np.bincount(block.rows, values, block.index.count) - to_floats(block.rhs, block.unit)
            found[name] = (-gap if block.relation == "<=" else gap) + 0.0
        return SeriesByName(self.problem.rows, found, "there are no rows")

    def _draw(self, ax: Axes | None) -> Axes:
        import matplotlib.pyplot as plt

        drawn: Axes | None = None if self.of_model is None else self.of_model.plot(self, ax)
        if drawn is not None:
            return drawn
        shown = next((n for n, b in self.problem.blocks.items() if len(b.index.keys) in (1, 2)), None)
        if shown is None:
            raise NotImplementedError(f"{self.problem.name} has no variables by one or two levels to draw")
        axes = ax if ax is not None else plt.subplots()[1]
        every, block = self.values(shown), self.problem.blocks[shown]
        if len(block.index.keys) == 1:
            axes.bar(list(map(str, every.index)), every.to_numpy())
            axes.set_xlabel(block.index.keys[0])
            axes.set_ylabel(shown)
        else:
            table = every.unstack()  # noqa: PD010
            table = table.reindex(
                index=block.index.levels[block.index.keys[0]].labels,
                columns=block.index.levels[block.index.keys[1]].labels,
            )
            image = axes.imshow(table.to_numpy(dtype=float), aspect="auto", cmap="Blues")
            for side, level in ((axes.yaxis, table.index), (axes.xaxis, table.columns)):
                if len(level) <= 40:
                    side.set_ticks(range(len(level)), [str(label) for label in level])
                side.set_label_text(str(level.name))
            axes.figure.colorbar(image, ax=axes, label=shown)
        axes.set_title(self.problem.name)
        return axes

    def _metrics(self) -> dict[str, float | int | str]:
        return {name: stage.value for name, stage in self.stages.items()}

    def _answer(self) -> dict[str, Any]:
        assert self.numbers is not None and self.exact is not None
        found: dict[str, dict[str, Any]] = {}
        for block in self.problem.blocks.values():
            used = np.flatnonzero(self.numbers[block.columns])
            if len(used):
                at = block.start + used
                values = [number(int(v) * self.exact.unit) for v in self.exact.numbers[at].tolist()]
                found[block.name] = dict(zip(block.index.texts(used), values, strict=True))
        return found

    def to_dict(self, *, duals: bool = True) -> dict[str, Any]:
        """The solution file as plain data, from which `flowlex verify` proves or refuses the answer."""
        answered = self.status.has_answer
        proof = to_document(self.found, self.program) if self.program is not None and not self.unproven else {}
        return {
            "kind": f"{self.source.kind}-solution",
            "version": VERSION,
            "instance": self.instance,
            "fingerprint": self.source.fingerprint,
            "model": self.model,
            "options": dict(self.options),
            "engine": self.engine,
            "status": str(self.status),
            "objective": self.objective,
            "bound": self.bound,
            "gap": self.gap,
            "stages": {
                s.name: {"value": s.value, "bound": s.bound, "quoted": s.quoted, "given_away": s.given_away}
                for s in self.stages.values()
            },
            "message": self.message,
            "answer": self._answer() if answered else {},
            **({"changes": self.changes.plain()} if self.changes else {}),
            "proof": proof,
            "certificate": None if self.certificate is None else self.certificate.to_dict(),
        }


def stage_duals(
    problem: Statement, stage: int, proof: Proof, found: StagesOutcome | None = None
) -> dict[str, Floats] | None:
    """Duals of an objective by name of the rows: its change with one unit more of the right side; None: it has none.

    It has some where one linear program settles it: in the proof, or by the solver (``found``) where there is no proof.
    """
    if stage >= len(problem.objectives):
        return None
    objective = problem.objectives[stage]
    sign, blocks = -1.0 if objective.maximize else 1.0, problem.rows.values()
    if leaves := proof.stages.get(objective.name, ()):
        (leaf, *more) = leaves
        if more or not leaf.own or leaf.branches or leaf.derived:
            return None
        sign /= float(leaf.own)
        each = [leaf.rows[b.name].floats if b.name in leaf.rows else np.zeros(b.index.count) for b in blocks]
    else:
        raw = found.stages[stage].leaves if found is not None and stage < len(found.stages) else ()
        if len(raw) != 1 or not raw[0].own or raw[0].branches or raw[0].cuts.any():
            return None
        ends = np.cumsum([0, *(b.index.count for b in blocks)]).tolist()
        rows = found.scaling.duals(stage, raw[0].rows) if isinstance(found, ScaledOutcome) else raw[0].rows
        each = [rows[begin:end] for begin, end in pairwise(ends)]
    return {b.name: sign * y + 0.0 for b, y in zip(blocks, each, strict=True)}


def duals_by_name(problem: Statement, duals: Mapping[str, Floats] | None) -> SeriesByName:
    """Duals as series; asking for one that is not there says why."""
    none = "this answer has no duals: its optimum is proven by a tree, not by one linear program; relaxed() has them"
    return SeriesByName(problem.rows, duals or {}, none)


def stage_answers(
    found: StagesOutcome, exact: Exact | None, program: ExactProgram, verdict: Verdict | None
) -> StageAnswers:
    """What an answer attains of each objective, and what is proven or quoted of it."""
    answers = StageAnswers()
    if exact is None:
        return answers
    checker = Checker(program)
    judged = {s.name: s for s in verdict.stages} if verdict is not None else {}
    for k, objective in enumerate(program.objectives):
        stage = judged.get(objective.name)
        value = stage.value if stage is not None else checker.value(objective, exact)
        bound = stage.bound if stage is not None else None
        result = found.stages[k] if k < len(found.stages) else None
        quoted = None if result is None else result.quoted
        if quoted is None and result is not None and result.proven and not (stage is not None and stage.proven):
            quoted = result.bound  # in the solver's floating point
        offset = float(objective.constant * objective.unit)
        answers[objective.name] = StageAnswer(
            objective.name,
            plain_number(value),
            None if bound is None else plain_number(bound),
            None if quoted is None else objective.sign * quoted + offset,
            stage.proven if stage is not None else False,
            plain_number(stage.given_away) if stage is not None else 0,
            (value, bound),
        )
    return answers


def faults(certificate: Certificate) -> str:
    """What is wrong with an answer."""
    return "; ".join(f"not so: {check.name} ({check.detail})" for check in certificate.checks if not check.ok)


def plain_number(value: Fraction | float) -> float | int:
    """A number for people: an integer where it is one."""
    return int(value) if Fraction(value).denominator == 1 else float(value)
