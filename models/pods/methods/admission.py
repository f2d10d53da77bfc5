"""Phase 1 of pod placement: admit as many pods as possible of each level, the most important first.

Without ruin and recreate 96.34 instead of 96.86 % of all GPUs are used in hindsight (`benchmarks/openb.py`, seed 42).
Every policy of `flowlex.models.pods.methods.placement_policies` places the pods once, so no baseline admits more. Ruin
and recreate improves the best placement. Prices of node classes bound how many more pods there can be. If the program
over single nodes is small, the statement closes the remaining gap: of 45 random instances with 400 to 10 000 columns
and all options, 12 admit less without it, and 14 are not proven.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Protocol

import numpy as np

from flowlex.formulations.engines import solve
from flowlex.formulations.processor_clock import processor_seconds
from flowlex.formulations.solver_outcome import EngineName, Outcome, SolveOptions, Status
from flowlex.instances.pods import PodArrays, PodInstance
from flowlex.models.pods.methods.column_generation import most_by_patterns
from flowlex.models.pods.methods.node_class_relaxation import ClassRelaxation, ResourcePrices
from flowlex.models.pods.methods.placement_policies import EVEN, POLICIES, Placing, in_order, place_by, tied
from flowlex.models.pods.methods.search_state import SearchState
from flowlex.models.pods.problem.admission_levels import Levels
from flowlex.models.pods.problem.balance_measures import Balance
from flowlex.models.pods.problem.cluster import Cluster, running_cluster
from flowlex.models.pods.problem.placement_columns import PlacementColumns
from flowlex.models.pods.problem.stage_programs import StagePrograms

#: Share of a time limit that admission may use.
_SHARE = 0.6
#: Share of that time for first placements, so that most is left to improve the best; and the policies tried first.
_FIRST_SHARE, _PROMISING = 0.25, ("fgd", "gpu-packing", "first-fit")
#: Steps of ruin and recreate per pod to place, least and most steps in total, and steps of one call.
_STEPS_PER_POD, _LEAST_STEPS, _MOST_STEPS, _BATCH = 300, 5_000, 500_000, 10_000
#: With a time limit, ruin and recreate ends after so many steps without a gain (and as many as led to the last one).
_STALE = 50_000
#: Largest number of columns (pod on node) for which patterns and the integer program replace the slower search.
_TINY = 150
#: Largest number of columns of the statement, by single pods, for its integer programs.
STATED = 10_000
#: Nodes of the search tree of one integer program.
NODES = 3_000


@dataclass(frozen=True)
class SearchLimits:
    """Limits of sizes and counted steps, independent of time."""

    # Largest number of columns (pod on node) for which patterns bound admission and the statement closes its gap
    admission: int = 4_000
    admitted_kinds: int = 400  # largest number of kinds of pods for which admission uses node patterns
    # Largest number of columns (pod on node) for which the statement balances loads; beyond, node patterns do
    direct: int = 150
    # Largest number of kinds of pods for which node patterns bound the balance; beyond, only the relaxation does
    kinds: int = 400
    # per_pod, least, most: steps of one run of a search: per pod, least and most; `max_steps` reduces them
    per_pod: int = 3_000
    least: int = 20_000
    most: int = 2_000_000
    # bounding, longest: steps of bounding, as a factor of the steps of a run, and their largest number
    bounding: int = 120
    longest: int = 200_000_000
    intervals: int = 300  # largest number of intervals of the mean
    # proven, tries: largest number of columns of the statement, by single pods, that is solved as a whole to prove what
    # searches and bounds leave open; and intervals of the mean before that
    proven: int = 400
    tries: int = 24

    def steps(self, pods: int, max_steps: int | None) -> int:
        """Steps of one run of a search for balanced loads."""
        usual = min(max(self.per_pod * pods, self.least), self.most)
        return min(usual, max_steps or usual)


@dataclass(frozen=True)
class Admission:
    """The result of phase 1."""

    # admitted, most: by level, most important first: value of the placed pods, and a proven upper bound
    admitted: tuple[int, ...] = ()
    most: tuple[int, ...] = ()
    prices: dict[int, ResourcePrices] = field(default_factory=dict)  # by level, the multipliers that prove ``most``
    # The placement; None if none was found, with the reason in ``failed``
    cluster: Cluster | None = None
    failed: Outcome | None = None

    @property
    def proven(self) -> bool:
        """Whether the admission is proven optimal."""
        return self.most == self.admitted


def remaining(options: SolveOptions, until: float | None, steps: int = NODES) -> SolveOptions:
    """Return the options with the remaining time, limited work, and gap 0."""
    limit = None if until is None else max(0.1, until - processor_seconds())
    return replace(options, gap=0.0, time_limit_s=limit, max_steps=options.max_steps or steps)


class PlacementModel(Protocol):
    """What searches read of a model of pod placement; its module imports theirs."""

    @property
    def instance(self) -> PodInstance: ...
    @property
    def placeable(self) -> PlacementColumns: ...
    @property
    def levels(self) -> Levels: ...
    @property
    def programs(self) -> StagePrograms: ...
    @property
    def bounds(self) -> ClassRelaxation: ...
    @property
    def limits(self) -> SearchLimits: ...
    @property
    def balance(self) -> Balance: ...
    @property
    def absolute_gap(self) -> float: ...


@dataclass(eq=False)
class Admitting:
    """One run of phase 1."""

    model: PlacementModel
    engine: EngineName
    options: SolveOptions
    # Callback for intermediate solutions, called with ``often`` in loops
    better: Callable[..., None] = lambda first, *, often=False: None

    def __post_init__(self) -> None:
        model, options = self.model, self.options
        self.placeable, self.levels, self.limits = model.placeable, model.levels, model.limits
        self.view: PodArrays = model.instance.arrays
        self.until = None if options.time_limit_s is None else processor_seconds() + _SHARE * options.time_limit_s
        groups = self.placeable.groups
        able = np.zeros(len(groups.count), bool)
        able[self.placeable.pairs[0]] = True
        self.can = able[groups.of] & (self.levels.of >= 0)
        gang = self.view.rules.gang
        self.can &= ~((gang >= 0) & np.isin(gang, gang[~able[groups.of]]))  # all or none
        self.wanted: tuple[int, ...] = self.levels.total(self.can)
        self.prices: dict[int, ResourcePrices] = {}

    @property
    def late(self) -> bool:
        """Whether the time limit of this phase is reached."""
        return self.until is not None and processor_seconds() >= self.until

    @property
    def small(self) -> bool:
        """Whether patterns bound admission, and the statement closes its gap where it is small enough, too."""
        return self.placeable.columns <= self.limits.admission

    @property
    def by_program(self) -> bool:
        """Whether integer programs of single levels close gaps: where the statement as a whole is not solved anyway."""
        return self.small and not self.model.programs.fits(self.limits.proven) and self.model.programs.fits(STATED)

    def count(self, cluster: Cluster) -> tuple[int, ...]:
        """Worth of the pods placed of each level, the most important first."""
        return self.levels.total(cluster.node >= 0)

    def run(self) -> Admission:
        """Place, improve and bound, then close the remaining gap."""
        start = running_cluster(self.view, cards=self.placeable.cards, all_of_it=False)
        best = None if start is None else self._first(start)
        most = list(self.wanted)
        if best is not None:
            self.better(lambda: self._result(best, most))
            found = self.count(best)
            most = self._bound(found)
            kinds = len(self.placeable.groups.count)  # with many different pods, patterns do not help
            patterned = not self.small and 2 * kinds <= len(self.view.cpu) and kinds <= self.limits.admitted_kinds
            at_once = patterned or self.placeable.columns <= min(_TINY, self.limits.admission)
            if found != tuple(most) and not (self.late or at_once):
                best = self._improve(best, most)
                self.better(lambda: self._result(best, list(self.wanted), {}))
                if self.count(best)[:-1] != found[:-1]:
                    most = self._bound(self.count(best))
            if self.count(best) != tuple(most) and (self.small or patterned):
                return self._exactly(best, most)
        elif self.by_program:
            return self._exactly(best, most)
        if best is None:
            message = "the running pods do not pack on their cards in falling order of size, and there are too many "
            message += "nodes to try all ways; let some of them move (move_cost), or split the instance"
            return Admission(failed=Outcome(Status.TIME_LIMIT, self.engine, message=message))
        return self._result(best, most)

    def _result(self, cluster: Cluster, most: list[int], prices: dict[int, ResourcePrices] | None = None) -> Admission:
        return Admission(self.count(cluster), tuple(most), dict(self.prices) if prices is None else prices, cluster)

    def _first(self, start: Cluster) -> Cluster:
        """Return the even placement if it places all pods, else the best of all policies, the promising first."""
        began = processor_seconds()
        best = place_by(EVEN, start, in_order(self.levels.of, self.view.load.most()))
        names = dict.fromkeys((*_PROMISING, *POLICIES))
        for policy in (*(POLICIES[name] for name in names), EVEN):
            late = self.until is not None and processor_seconds() - began > _FIRST_SHARE * (self.until - began)
            if self.count(best) == self.wanted or late:
                break
            trial = Placing(start, policy, self.options.seed)
            trial.place(in_order(self.levels.of))
            if self.levels.total(trial.state.node >= 0) > self.count(best):
                best = trial.cluster()
        return best

    def _bound(self, found: tuple[int, ...]) -> list[int]:
        """Upper bound of each level, given the values ``found`` of the levels above."""
        most: list[int] = []
        for level, (number, wanted) in enumerate(zip(found, self.wanted, strict=True)):
            self.prices.pop(level, None)
            if number < wanted:
                prices = self.model.bounds.most(level, found[:level], remaining(self.options, None, 10**7))
                if prices is not None:
                    self.prices[level] = prices
                    wanted = max(number, min(wanted, prices.most))
            most.append(wanted)
        return most

    def _improve(self, cluster: Cluster, most: list[int]) -> Cluster:
        """Run ruin and recreate until the bounds or the limit of steps are reached."""
        from flowlex.models.pods.methods.ruin_and_recreate import recreate

        view, state = self.view, SearchState.of(cluster)
        levels = self.levels
        alike = np.stack(
            [view.load.row, view.rules.kind, levels.of, levels.worth, state.pin, state.home_cards.astype(np.int64)]
        )
        _, one, group = np.unique(alike, axis=1, return_index=True, return_inverse=True)
        waiting, first = np.zeros(len(one), np.int64), np.full(len(one), -1)
        fixed = view.stays | tied(view)
        for pod in np.flatnonzero(self.can & (cluster.node < 0) & ~fixed)[::-1].tolist():
            state.after[pod] = first[group[pod]]
            first[group[pod]] = pod
            waiting[group[pod]] += 1
        total = int(np.clip(_STEPS_PER_POD * self.can.sum(), _LEAST_STEPS, _MOST_STEPS))
        total = min(total, self.options.max_steps or total)
        enough = np.array(self.wanted, np.int64) - np.array(most, np.int64)
        rng, size = np.random.default_rng(self.options.seed), view.load.most()[one]
        waits, gained = waiting.sum(), 0
        for done in range(0, total, _BATCH):
            steps = min(_BATCH, total - done)
            worth = levels.worth[one]
            if recreate(state, group, levels.of[one], worth, size, waiting, first, fixed, steps, rng, enough) < steps:
                break
            if waiting.sum() < waits:
                waits, gained = waiting.sum(), done
            if self.late or (self.until is not None and done - gained >= max(_STALE, gained)):  # time for the balance
                break
            self.better(lambda: self._result(state.cluster(cluster), list(self.wanted), {}), often=True)
        return state.cluster(cluster)

    def _exactly(self, cluster: Cluster | None, most: list[int]) -> Admission:
        """Close the gap level by level with node patterns, then, for small programs, with the statement."""
        large, kept, shown = not self.small, list[int](), dict[int, ResourcePrices]()
        for k in range(len(self.levels.keys)):
            before = cluster
            if cluster is not None and self.count(cluster)[k] < most[k] and not (large and self.late):
                at, enough, until = cluster.node, self.count(cluster)[k], self.until if large else None
                prices, better = most_by_patterns(
                    self.model.instance, self.placeable, k, kept, at, enough, large=large, until=until
                )
                if prices is not None and prices.most < most[k]:
                    shown[k], most[k] = prices, max(self.count(cluster)[k], prices.most)
                if better is not None and self.count(better)[: k + 1] > self.count(cluster)[: k + 1]:
                    cluster = better
            found = -1 if cluster is None else self.count(cluster)[k]
            if found < most[k] and self.by_program:
                outcome, better = self._stated(f"admission {self.levels.keys[k]}", kept, 1 / self.levels.unit[k])
                if better is not None and self.count(better)[: k + 1] > (*kept, found):
                    cluster = better
                if cluster is None:
                    return Admission(failed=outcome)
                bound = most[k] if outcome.bound is None else int(np.floor(min(float(outcome.bound), most[k]) + 1e-6))
                most[k] = max(self.count(cluster)[k], bound)
            assert cluster is not None
            if self.count(cluster)[k] < most[k] and self.model.programs.fits(self.limits.proven):
                break
            short = large and self.count(cluster)[k] < most[k] and not self.late
            if cluster is not before or short:  # bounds of later levels depend on the values above
                cluster = self._improve(cluster, most)
                most[k + 1 :] = self._bound(self.count(cluster))[k + 1 :]
            kept.append(self.count(cluster)[k])
        if cluster is None:  # there is nothing to place, but running pods must be packed
            outcome, cluster = self._stated(None, ())
            if cluster is None:
                return Admission(failed=outcome)
        return self._result(cluster, most, self.prices | shown)

    def _stated(
        self, objective: str | None, kept: Sequence[int], scale: Fraction = Fraction(1)
    ) -> tuple[Outcome, Cluster | None]:
        """Solve the program of an objective, multiplied by ``scale``; ``kept``: values of the first levels."""
        program = self.model.programs.program(objective, self.levels.stages(kept))
        if objective is not None:
            program.maximize(program.objective * float(scale))
        outcome = solve(program, self.engine, remaining(self.options, self.until))
        found = None if outcome.values is None else self.model.programs.placement(program, outcome.values)
        return outcome, found
