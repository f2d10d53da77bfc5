"""Solve a large changed round by its two programs, and write the proofs of the stages with the statement's names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from flowlex.formulations.lexicographic.objective_stages import Leaf, StageResult, StagesOutcome, solve_stages
from flowlex.formulations.processor_clock import processor_seconds
from flowlex.formulations.program_arrays import Floats, Integers
from flowlex.formulations.solver_outcome import Infeasibility, Outcome, SolveOptions, Status
from flowlex.models.gpu.large_rounds.class_network import Network
from flowlex.models.gpu.large_rounds.class_program import Program, Refined
from flowlex.models.gpu.large_rounds.user_written_rules import Rules
from flowlex.models.gpu.placement_metrics import Placement
from flowlex.models.gpu.round_eligibility import Round
from flowlex.models.gpu.transfer_costs import TransferCosts
from flowlex.models.solution import Dual

METHOD = "compact network, classes refined by the rules"


@dataclass(frozen=True, eq=False)
class RefinedRun:
    """The result, like `flowlex.models.statement.solve_statement.StatementRun`; ``gpu`` is None without a solution."""

    outcome: Outcome
    gpu: Integers | None
    stages: Mapping[str, Fraction]
    bounds: Mapping[str, Fraction | None]
    proof: Mapping[str, Any]
    duals: Mapping[str, Dual]
    placed: Mapping[str, Mapping[str, Any]]
    slacks: Mapping[str, Dual]
    method: str = METHOD

    @property
    def answered(self) -> bool:
        """Whether there is a solution."""
        return self.gpu is not None

    @property
    def values(self) -> dict[str, Integers]:
        """The placements, under the key ``gpu``."""
        assert self.gpu is not None
        return {"gpu": self.gpu}

    def document(self) -> Mapping[str, Mapping[str, Any]]:
        """Nonzero values by variable and label."""
        return self.placed

    def slack(self) -> Mapping[str, Dual]:
        """Slack of every user-written constraint."""
        return self.slacks


def run_refined(
    plan: Round, costs: TransferCosts, rules: Rules, options: SolveOptions, *, restarted: bool = False
) -> RefinedRun:
    """Solve fair shares and the number of running tasks first; with these fixed, minimise transfer, then stops."""
    started = processor_seconds()
    model = Refined(plan, costs, rules)
    program, stages = model.fair()
    names = [*stages]
    units = dict.fromkeys(names, Fraction(1))
    first = solve_stages(program.arrays(), [*stages.values()], replace(options, max_steps=1))
    write = _Writer(model, units)
    if first.values is None:
        return _no_answer(first, write, program, model.gpu_class, rules)
    network = Network(model)
    kept = dict(zip(names, (result.value for result in first.stages), strict=True))
    second, transfer, stops, unit = network.build(kept)
    costs_of = [transfer, stops] if plan.policy.preemptive and len(model.held) else [transfer]
    left = options.time_limit_s and max(options.time_limit_s - (processor_seconds() - started), 0.1)
    found = solve_stages(second.arrays(), costs_of, replace(options, max_steps=1, time_limit_s=left))
    if found.values is None:
        return RefinedRun(Outcome(found.status, "highs", message=found.message), None, {}, {}, {}, {}, {}, {})
    units |= {"transfer": unit, "stops": Fraction(1)}
    later = ["transfer", "stops"][: len(costs_of)]
    proof, known = {}, True
    for k, (name, result) in enumerate(zip((*names, *later), (*first.stages, *found.stages), strict=True)):
        if known and len(result.leaves) == 1:
            at = (program, model.gpu_class) if k < len(names) else (second, network.place)
            proof[name] = [write.leaf(result.leaves[0], *at, unit=units[name], before=[*names, *later][:k])]
        known = known and result.proven
    gpu = network.placements(found.values)
    main = found.stages[0]
    values = _stage_values(model, gpu)
    bound: dict[str, Fraction | None] = dict(values)
    open_ = [r for r in (*first.stages, *found.stages) if not r.proven]
    if open_:
        gap = max(main.value - main.bound, 0)
        proven = all(result.proven for result in first.stages)
        bound["transfer"] = values["transfer"] - Fraction(gap) * unit if proven else None
    message = first.message or found.message
    if restarted:
        message = f"{message} The start was not used: this method begins with fair shares.".lstrip()
    outcome = Outcome(Status.FEASIBLE if open_ else Status.OPTIMAL, "highs", message=message)
    slack = _slack(second, found.values, rules)
    duals = write.duals(main, second, network.place, float(unit)) if main.proven else {}
    return RefinedRun(outcome, gpu, values, bound, {"stages": proof}, duals, _values(model, gpu), slack)


def _no_answer(found: StagesOutcome, write: _Writer, program: Program, place: Integers, rules: Rules) -> RefinedRun:
    """Return the infeasible result: the conflicting rules and the multipliers that prove the conflict."""
    outcome = Outcome(found.status, "highs", message=found.message)
    proof: dict[str, Any] = {}
    if found.status is Status.INFEASIBLE:
        names = tuple(rule.name for rule in rules.rules)
        if len(found.empty) == 1:
            leaf = found.empty[0]
            proof = {"empty": [write.leaf(leaf, program, place)]}
            rows = program.split_rows(leaf.rows)
            names = tuple(n for n in names if np.abs(rows[f"own {n}"]).max(initial=0) > 1e-9)
        text = f"No answer satisfies all rows; own rules that conflict: {', '.join(names) or 'bounds of x'}."
        outcome = replace(outcome, infeasibility=Infeasibility(text, names), message=text)
    return RefinedRun(outcome, None, {}, {}, proof, {}, {}, {})


def _stage_values(model: Refined, gpu: Integers) -> dict[str, Fraction]:
    """Compute the exact value of every stage for given placements."""
    view, policy = model.view, model.plan.policy
    placed = Placement(view, model.costs, gpu)
    counts, values = placed.running_by_job, {}
    if policy.fair:
        last = int(model.step.max(initial=0))
        values = {f"share_{k}": Fraction(int((counts >= k).sum())) for k in range(1, last + 1)}
    values["running"] = Fraction(int((gpu >= 0).sum()))
    waits = int((gpu < 0).sum()) if policy.fair else 0
    own = sum((term.coefficient * _counted(term, gpu) for term in model.rules.costs), Fraction(0))
    values["transfer"] = placed.exact_transfer_s + placed.lost_work_s + waits * model.costs.waiting_s + own
    if policy.preemptive and len(model.held):
        values["stops"] = Fraction(len(placed.preempted))
    return values


def _counted(term: Any, gpu: Integers) -> int:
    at = gpu >= 0
    return int(((term.task[at] >= 0) & (term.gpu[gpu[at]] >= 0)).sum())


def _values(model: Refined, gpu: Integers) -> dict[str, dict[str, int]]:
    """Return the nonzero values of the statement's variables."""
    view = model.view
    at = np.flatnonzero(gpu >= 0).tolist()
    document = {"x": {f"{view.task_names[t]},{view.gpu_names[gpu[t]]}": 1 for t in at}}
    if model.plan.policy.fair:
        counts = np.bincount(view.task_job[gpu >= 0], minlength=len(view.job_names)).tolist()
        steps = {f"{job},{k}": 1 for job, n in zip(view.job_names, counts, strict=True) for k in range(1, n + 1)}
        document["share_step"] = steps
    return {name: each for name, each in document.items() if each}


def _slack(program: Program, values: Floats, rules: Rules) -> dict[str, Dual]:
    """Distance of every own row from its side."""
    found = {}
    for rule in rules.rules:
        activity = program.constraint_blocks[f"own {rule.name}"].expression.evaluate(np.rint(values))
        gap = activity - rule.rhs if rule.relation == ">=" else rule.rhs - activity
        found[rule.name] = Dual(gap / float(rule.scale), rule.labels)
    return found


class _Writer:
    """Write multipliers with the names and labels of the statement."""

    def __init__(self, model: Refined, units: Mapping[str, Fraction]) -> None:
        self.model, self.units = model, units
        #: The largest coefficient of each own rule.
        self._sizes = {
            rule.name: float(max((abs(term.coefficient) for term in rule.terms), default=0)) or 1.0
            for rule in model.rules.rules
        }

    def leaf(
        self, leaf: Leaf, program: Program, place: Integers, unit: Fraction = Fraction(1), before: Sequence[str] = ()
    ) -> dict[str, Any]:
        """Write the multipliers of a leaf as integer multiples of a fraction with a small denominator."""
        effects = leaf.rows.copy()
        for rule, largest in self._sizes.items():
            effects[program.constraint_blocks[f"own {rule}"].rows] *= largest
        grain = _grain(np.concatenate([effects, leaf.earlier]))
        rows = {}
        for name, (values, labels, scale) in self._named(leaf.rows, program, place).items():
            size = Fraction(self._sizes.get(name, 1.0))  # a multiplier is rounded relative to the numbers of its row
            used = np.rint(values * float(size) * grain)
            some = np.flatnonzero(used)
            text = {y: _text(Fraction(int(y), grain) / size * scale * unit) for y in np.unique(used[some]).tolist()}
            texts = {labels[k]: text[y] for k, y in zip(some.tolist(), used[some].tolist(), strict=True)}
            if texts:
                rows[name] = texts
        here = program.split_rows(leaf.rows)
        mine = [float(here[f"stage {n}"][0]) for n in before if f"stage {n}" in here]
        both = zip(before, [*mine, *leaf.earlier.tolist()], strict=True) if before else ()
        earlier = {n: Fraction(round(e * grain), grain) * unit / self.units[n] for n, e in both if round(e * grain)}
        document: dict[str, Any] = {"own": leaf.own, "rows": rows}
        return document | ({"earlier": {n: _text(e) for n, e in earlier.items()}} if earlier else {})

    def _named(
        self, rows: Floats, program: Program, place: Integers
    ) -> dict[str, tuple[Floats, Sequence[str], Fraction]]:
        """Return multipliers of GPUs, jobs, orders and user-written rules, with their labels and scale factors."""
        view, one, given = self.model.view, Fraction(1), program.split_rows(rows)
        labels = {"share": view.job_names, "keep": view.job_names, "order": self.model.orders}
        found: dict[str, tuple[Floats, Sequence[str], Fraction]] = {
            "gpu_out": (given["gpu_out"][place], view.gpu_names, one),
            **{name: (given[name], of, one) for name, of in labels.items() if name in given},
        }
        for rule in self.model.rules.rules:
            found[rule.name] = given[f"own {rule.name}"], rule.labels, rule.scale
        return found

    def duals(self, result: StageResult, program: Program, place: Integers, unit: float) -> dict[str, Dual]:
        """Return the duals of the main stage, in seconds."""
        named = self._named(result.leaves[0].rows, program, place)
        return {name: Dual(v * unit * float(scale), labels) for name, (v, labels, scale) in named.items()}


def _grain(values: Floats) -> int:
    """Return the smallest listed denominator that represents all values exactly, or a large one."""
    for grain in (1, 2, 3, 4, 6, 12, 60):
        if np.abs(values * grain - np.rint(values * grain)).max(initial=0) < 1e-6:
            return grain
    return 2**20


def _text(value: Fraction) -> int | str:
    return int(value) if value.denominator == 1 else str(value)
