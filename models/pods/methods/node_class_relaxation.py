r"""Bounds by linear programs over node classes, with patterns of cards and fractional pods.

Every bound of large placements rests on it: 96.86 % of all GPUs of `benchmarks/openb.py` in hindsight, at most 96.89 %.
Without it, node patterns leave 54 instead of 3.4 % of the mean distance open (100 nodes, 500 pods, 60 s), take 21 s
instead of 3.5 for the deviation, and bound nothing where hardly two pods are alike.

x_gc pods of group g on nodes of class c and z_cf cards of class c with pattern f::

    sum_c x_gc <= n_g,  = n_g for running pods that may move   (group, running)
    sum_g a_gr x_gc <= n_c free_cr      for cores and memory   (cpu, memory)
    sum_{g of size s} m_g x_gc <= sum_f f_s z_cf - held_cs     (size)
    sum_f z_cf <= n_c cards_c                                  (card)
    value of x of each level >= (admission), = (balance) kept  (kept)
    sum of moves <= budget                                     (move_budget)
    shares of quotas, and of spreads' domains together, <= 1   (rules; of phase 1)

Phase 1 maximises the value of a level. Phase 2 minimises the balance of the classes' mean loads, with squares
approximated by tangents, and finds the least and largest mean load of all placements at least as balanced as a given
one. The optimum over classes equals that over single nodes, because equal nodes can share fractional pods evenly.

The certificate (`flowlex.validation.restated.pods`) needs only their duals: it finds the best card patterns itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from flowlex.formulations.engines import solve
from flowlex.formulations.linear_expression import Expression, Variables
from flowlex.formulations.linear_program import LinearProgram
from flowlex.formulations.program_arrays import Booleans, Floats, Integers
from flowlex.formulations.solver_outcome import Outcome, SolveOptions, Status
from flowlex.instances.pods import PodInstance
from flowlex.models.pods.methods.row_aggregation import Choices, solve_by_cells
from flowlex.models.pods.problem.balance_measures import SCALE, Measure
from flowlex.models.pods.problem.cluster import stays
from flowlex.models.pods.problem.group_rules import shares
from flowlex.models.pods.problem.node_and_pod_classes import NodeClasses
from flowlex.models.pods.problem.placement_columns import PlacementColumns

#: Largest number of columns of a program, and largest number of groups without aggregation into cells.
_COLUMNS, _GROUPS = 3_000_000, 200


@dataclass(frozen=True, eq=False)
class ResourcePrices:
    """Dual multipliers that prove an upper bound on the value of a level, or a lower bound on the balance's sum."""

    bound: float  # the proven bound: units of the level, or the sum of the balance
    # cpu, memory: (C,) multiplier of one core and of one GB on the nodes of a class
    cpu: Floats = field(repr=False)
    memory: Floats = field(repr=False)
    # By class: multiplier by memory (share of a card) of a slot of this size
    size: tuple[dict[float, float], ...] = field(repr=False)
    # Multiplier of one unit of each more important level; for the balance of every level, of any sign
    kept: tuple[float, ...] = field(repr=False)
    move: float  # multiplier of one unit of the move budget
    # slope, mean: (C,) multiplier of a node's load, and multiplier of the sum of all loads; for the balance only
    slope: Floats | None = field(default=None, repr=False)
    mean: float = 0.0
    # Multiplier of the whole limit of a quota or a spread, by name; for admission only
    rules: dict[str, float] = field(default_factory=dict)
    # (G,) multiplier of a pod of each group and (P,) groups, in place of multipliers of resources
    pods: tuple[Floats, Integers] | None = field(default=None, repr=False)

    @property
    def most(self) -> int:
        """Upper bound on the units of a level."""
        return int(np.floor(self.bound + 1e-6))


class _Built(NamedTuple):
    """A program, its columns (group on class), and the card rows of each class."""

    program: LinearProgram
    x: Variables
    cards: dict[int, CardRows]


class ClassRelaxation:
    """The programs of one instance."""

    def __init__(self, instance: PodInstance, placeable: PlacementColumns) -> None:
        view = self.view = instance.arrays
        groups, levels, cards, move_budget = placeable.groups, placeable.levels, placeable.cards, placeable.move_budget
        self.instance, self.groups, self.cards, self.move_budget = instance, groups, cards, move_budget
        self.level, self.worth = levels.of[groups.first], levels.worth[groups.first]
        self.fixed = stays(view, move_budget)
        self.classes = classes = NodeClasses.of_instance(instance, move_budget)
        may = np.zeros((len(groups.count), len(classes.count)), bool)
        group, node = placeable.pairs  # what fits an empty node
        may[group, classes.of[node]] = True
        may[self.fixed[groups.first] >= 0] = False
        self.group, self.kind = np.nonzero(may)
        _, cell = np.unique(np.column_stack([may, self.level]), axis=0, return_inverse=True)
        self.cell: Integers = cell.astype(np.int64)  # cell of each group; cells are refined by `_solved`
        self.pod, self.node = groups.first[self.group], classes.first[self.kind]
        held = np.flatnonzero(self.fixed >= 0)
        self.held = [held[self.fixed[held] == n] for n in classes.first.tolist()]
        # Memory on one card, exactly; without cards, on the node as a whole.
        self.need: Any = view.exact.gpu[self.pod, self.node] * (1 if cards else view.gpu_cards[self.pod])
        self.slots = view.gpu_cards[self.pod] if cards else np.minimum(view.gpu_cards[self.pod], 1)
        whole = view.exact.card[classes.first] * (1 if cards else view.cards[classes.first])
        self.whole, self.number = whole, (view.cards if cards else np.minimum(view.cards, 1))[classes.first]

    # Phase 1

    def most(self, level: int, kept: Sequence[int], options: SolveOptions) -> ResourcePrices | None:
        """Bound a level, given the values ``kept`` of the levels above, with proof; None if not solved."""
        if len(self.group) > _COLUMNS or not len(self.group):
            return None
        use = self.level[self.group] <= level  # without pods of later levels
        built = self._program(use, filled=True)
        program, x = built.program, built.x
        for k, number in enumerate(kept):
            if number:
                program.constrain(f"kept_{k}", self._worth(x, use, k), ">=", float(number))
        names, share, free = shares(self.view, self.fixed)
        for r, left in enumerate(free.tolist()):
            program.constrain(f"rule_{r}", (x * share[r, self.pod[use]]).sum(), "<=", left)
        program.maximize(self._worth(x, use, level))
        found = self._solved(program, use, options)
        if found is None:
            return None
        bound, _, duals = found
        prices = self._prices(built, duals, bound, kept=len(kept))
        rows = [program.constraint_blocks[f"rule_{r}"].rows for r in range(len(names))]
        paid = [float(np.abs(duals[row]).sum()) for row in rows]
        return replace(prices, rules=dict(zip(names, paid, strict=True)))

    def _worth(self, x: Variables, use: Booleans, level: int) -> Expression:
        group = self.group[use]
        rows = self.level[group] == level
        worth: Expression = (x[rows] * self.worth[group[rows]].astype(np.float64)).sum()
        return worth

    # Phase 2

    def _even(
        self, measure: Measure, admitted: Sequence[int], points: list[Floats]
    ) -> tuple[_Built, Expression, Expression]:
        """Return the program with the admitted values fixed, the (C,) mean loads in percent, and the measure."""
        use = np.ones(len(self.group), bool)
        built = self._program(use, filled=False)  # card patterns hardly affect the loads
        program, x = built.program, built.x
        for k, number in enumerate(admitted):
            program.constrain(f"kept_{k}", self._worth(x, use, k), "==", float(number))
        count, size = self.classes.count.astype(np.float64), len(self.classes.count)
        each = (x * (SCALE * self.view.load[self.pod, self.node] / count[self.kind])).sum_by(self.kind, size)
        pairs = zip(self.held, self.classes.first.tolist(), strict=True)
        loads = each + SCALE * np.array([self.view.load[pods, n].sum() for pods, n in pairs])
        return built, loads, measure.expression(program, loads, count, points)

    def even(
        self, measure: Measure, admitted: Sequence[int], points: list[Floats], options: SolveOptions
    ) -> tuple[ResourcePrices, Floats] | None:
        """Return the bound of the balance's sum with its proof, and the optimal (C,) loads in percent, or None."""
        if len(self.group) > _COLUMNS:
            return None
        built, loads, total = self._even(measure, admitted, points)
        built.program.minimize(total)
        found = self._solved(built.program, np.ones(len(self.group), bool), options)
        if found is None:
            return None
        bound, values, duals = found
        return self._prices(built, duals, bound, kept=len(admitted), measure=measure), loads.evaluate(values)

    def end_of_means(
        self,
        measure: Measure,
        admitted: Sequence[int],
        points: list[Floats],
        at_most: float,
        options: SolveOptions,
        *,
        largest: bool,
    ) -> tuple[float, ResourcePrices] | None:
        """Least or largest mean load in percent of placements whose balance's sum is at most ``at_most``, with proof.

        The proof shows that the sum exceeds ``at_most`` for every mean beyond.
        """
        if len(self.group) > _COLUMNS:
            return None
        built, loads, total = self._even(measure, admitted, points)
        program = built.program
        program.constrain("at_most", total, "<=", at_most)
        weight, sign = self.classes.count / self.classes.count.sum(), -1.0 if largest else 1.0
        program.minimize((loads * (sign * weight)).sum())
        found = self._solved(program, np.ones(len(self.group), bool), options)
        if found is None:
            return None
        end, _, duals = found
        # Normalise the multipliers to a unit of the sum.
        unit = max(1e-9, abs(float(duals[program.constraint_blocks["at_most"].rows][0])))
        mean = sign / (unit * float(self.classes.count.sum()))
        prices = self._prices(built, duals / unit, at_most, kept=len(admitted), measure=measure, mean=mean)
        return sign * end, prices

    def _solved(
        self, program: LinearProgram, use: Booleans, options: SolveOptions
    ) -> tuple[float, Floats, Floats] | None:
        """Optimum, values and duals, by row aggregation if there are many groups; None if no bound is proven."""
        found = self._outcome(program, use, options)
        if found.status is not Status.OPTIMAL or found.duals is None or found.values is None:
            return None
        return float(found.objective or 0.0), found.values, found.duals

    def _outcome(self, program: LinearProgram, use: Booleans, options: SolveOptions) -> Outcome:
        there, group = np.unique(self.group[use], return_inverse=True)
        if len(there) <= _GROUPS:
            return solve(program, "highs", options)
        runs, row = self.level < 0, np.full(len(self.level), -1)
        for name, which in (("group", ~runs), ("running", runs & (self.fixed[self.groups.first] < 0))):
            if name in program.constraint_blocks:
                row[which] = np.arange(program.row_count)[program.constraint_blocks[name].rows]
        column, count = program.variable("x").column, self.groups.count[there].astype(np.float64)
        choices = Choices(column, group, self.kind[use], row[there], count, ~runs[there])
        _, cell = np.unique(self.cell[there], return_inverse=True)
        size = self.view.load.most()[self.groups.first[there]]
        outcome, cell = solve_by_cells(program.arrays(), choices, cell, size, options)
        self.cell[there] = self.cell.max() + 1 + cell
        return outcome

    # Rows

    def _program(self, use: Booleans, *, filled: bool) -> _Built:
        """The rows of both phases; ``filled``: with card patterns."""
        view, classes = self.view, self.classes
        group, kind, pod = self.group[use], self.kind[use], self.pod[use]
        size, count = len(classes.count), classes.count.astype(np.float64)
        program = LinearProgram("classes")
        x = program.variables("x", len(group), upper=self.groups.count[group])
        runs = self.level < 0
        placed = x.sum_by(group, len(self.groups.count))
        moves = runs & (self.fixed[self.groups.first] < 0)
        program.constrain("group", placed[~runs], "<=", self.groups.count[~runs])
        if moves.any():
            program.constrain("running", placed[moves], "==", self.groups.count[moves])
        for name, used, r in (("cpu", view.cpu, 1), ("memory", view.memory, 2)):
            whole = view.capacity[classes.first, r]
            held = np.array([used[pods].sum() for pods in self.held]) / whole
            share = (x * (used[pod] / whole[kind])).sum_by(kind, size)
            program.constrain(name, share, "<=", count * (1.0 - held))
        home = classes.of[np.where(view.running[pod] >= 0, view.running[pod], 0)]
        cost = np.where((view.running[pod] >= 0) & (home != kind), view.move_cost[pod], 0.0)
        if cost.any():
            program.constrain("move_budget", (x * cost).sum(), "<=", self.move_budget)
        cards, columns, on = {}, np.flatnonzero(use), (self.slots[use] > 0) & (self.need[use] > 0)
        for c in np.unique(kind[on]).tolist():
            mine = np.flatnonzero(on & (kind == c))
            cards[c] = self._cards(program, x[mine], c, columns[mine], filled=filled)
        return _Built(program, x, cards)

    def _cards(self, program: LinearProgram, x: Variables, c: int, of: Integers, *, filled: bool) -> CardRows:
        """Add the card rows of one class for its columns ``x``, numbered ``of``."""
        view, held = self.view, self.held[c][self.view.gpu_cards[self.held[c]] > 0]
        need, slots = self.need[of], self.slots[of]
        taken = view.exact.gpu[held, self.classes.first[c]] * (1 if self.cards else view.gpu_cards[held])
        nodes, whole = float(self.classes.count[c]), int(self.whole[c])
        times = nodes * (view.gpu_cards[held] if self.cards else np.ones(len(held), np.int64))
        cards, sizes = nodes * float(self.number[c]), np.unique(np.concatenate([need, taken[taken > 0]]))[::-1]
        ways = fillings(sizes.tolist(), whole) if filled and len(sizes) < 200 else None
        if ways is None:
            for name, used, fixed in (
                ("gpu", need / whole, taken / whole),
                ("large", (2 * need > whole) * 1.0, (2 * taken > whole) * 1.0),
            ):
                free = cards - float((fixed * times).sum())
                program.constrain(f"{name}_{c}", (x * (used * slots)).sum(), "<=", free)
            return CardRows(c, sizes / whole, patterned=False)
        table, size = np.array(ways, np.float64), len(sizes)
        z = program.variables(f"z_{c}", len(table))
        program.constrain(f"card_{c}", z.sum(), "<=", cards)
        way, s = np.nonzero(table)
        offered = (z[way] * table[way, s]).sum_by(s, size)
        used = (x * slots.astype(np.float64)).sum_by(size - 1 - np.searchsorted(sizes[::-1], need), size)
        on = taken > 0
        kept = np.bincount(size - 1 - np.searchsorted(sizes[::-1], taken[on]), times[on], size)
        program.constrain(f"size_{c}", used - offered, "<=", -kept)
        return CardRows(c, sizes / whole, patterned=True)

    def _prices(
        self,
        built: _Built,
        duals: Floats,
        bound: float,
        *,
        kept: int = 0,
        measure: Measure | None = None,
        mean: float = 0.0,
    ) -> ResourcePrices:
        """Return the duals in units of the instance, as absolute values because rounding may give wrong signs."""
        blocks, scale = built.program.constraint_blocks, 1.0 if measure is None else measure.total(SCALE, 1)

        def of(name: str) -> Floats:
            return np.abs(duals[blocks[name].rows]) / scale if name in blocks else np.zeros(1)

        sizes = [built.cards[c].prices(of) if c in built.cards else {} for c in range(len(self.classes.count))]
        rows = (blocks[f"kept_{k}"].rows if f"kept_{k}" in blocks else None for k in range(kept))
        kept_each = tuple(0.0 if row is None else float(duals[row][0]) / scale for row in rows)
        capacity, slope = self.view.capacity[self.classes.first], None
        if measure is not None:
            slope = sum(-duals[blocks[name].rows] for name in measure.loaded) * SCALE / scale / self.classes.count
        return ResourcePrices(
            bound,
            of("cpu") / capacity[:, 1],
            of("memory") / capacity[:, 2],
            tuple(sizes),
            kept_each,
            float(of("move_budget")[0]),
            slope,
            mean * SCALE / scale,
        )


#: Largest number of card patterns; beyond it, only total memory and pods with more than half a card are constrained.
_WAYS = 4_000


@dataclass(frozen=True, eq=False)
class CardRows:
    """The card rows of one class: ``size`` and ``card``, or ``gpu`` and ``large`` where there are too many patterns."""

    number: int
    share: Floats  # (S,) needs as shares of a card, descending
    patterned: bool

    def prices(self, of: Callable[[str], Floats]) -> dict[float, float]:
        """Return price by share of a card of a pod on one card; ``of`` gives the duals of a row."""
        c, share = self.number, self.share
        if self.patterned:
            price = of(f"size_{c}")[: len(share)]
        else:
            price = float(of(f"gpu_{c}")[0]) * share + float(of(f"large_{c}")[0]) * (2 * share > 1)
        return dict(zip(share.tolist(), price.tolist(), strict=True))


def fillings(sizes: list[int], room: int, most: int = _WAYS) -> list[list[int]] | None:
    """All maximal patterns of a card, as counts by size (descending); None if there are more than ``most``."""
    found: list[list[int]] = []
    tried = 0

    def fill(k: int, left: int, counts: list[int]) -> bool:
        nonlocal tried
        if k == len(sizes):
            tried += 1
            if left < sizes[-1] if sizes else True:
                found.append(counts)
            return len(found) <= most and tried <= 20 * most
        return all(fill(k + 1, left - many * sizes[k], [*counts, many]) for many in range(left // sizes[k], -1, -1))

    return found if fill(0, room, []) else None
