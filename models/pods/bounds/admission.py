r"""At most how many pods of a priority can be placed: nodes of a class taken together, cards filled exactly.

x_gc pods of group g on nodes of class c and z_cf cards of class c filled in way f, in parts as well::

    maximise   sum of x_gc over the groups of the priority
    subject to sum_c x_gc <= n_g,  = n_g for what runs and may move       (group)
               sum_g a_gr x_gc <= n_c free_cr      for cores and memory   (cpu, memory)
               sum_{g of size s} m_g x_gc <= sum_f f_s z_cf - held_cs     (size)
               sum_f z_cf <= n_c cards_c                                  (card)
               sum of x_gc of each more important priority >= its number  (kept)
               sum of moves <= budget                                     (move_budget)

The duals of these rows are what `flowlex.validation.certificates.pods` needs: it finds the most that a card can be
worth at these prices itself, so it takes no list of fillings on trust.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from flowlex.formulations.arrays import Booleans, Floats, Integers
from flowlex.formulations.engines import solve
from flowlex.formulations.expression import Variables
from flowlex.formulations.linear_program import LinearProgram
from flowlex.formulations.outcome import SolveOptions, Status
from flowlex.instances.pods import PodInstance
from flowlex.models.pods.bounds.pattern_program import fillings
from flowlex.models.pods.problem.classes import NodeClasses
from flowlex.models.pods.problem.levels import Levels
from flowlex.models.pods.problem.program import Groups, stays

__all__ = ["AdmissionBounds", "Prices"]

#: Ways to fill a card that are told apart; beyond, memory is counted and pods of more than half a card.
_WAYS = 4_000
#: Columns that one program may have.
_COLUMNS = 3_000_000


@dataclass(frozen=True, eq=False)
class Prices:
    """What proves that no more than ``most`` units of a level can be placed.

    Attributes
    ----------
    cpu, memory
        (C,) price of one core and of one GB on the nodes of a class, in units of the level (pods, or their worth).
    size
        By class, memory as a share of a card to the price of one such slot.
    kept
        By more important level, the price of a unit of it.
    move
        Price of a unit of the move budget.
    """

    most: int
    cpu: Floats = field(repr=False)
    memory: Floats = field(repr=False)
    size: tuple[dict[float, float], ...] = field(repr=False)
    kept: tuple[float, ...] = field(repr=False)
    move: float


class AdmissionBounds:
    """Bounds for one instance; made once and asked for each priority.

    Parameters
    ----------
    pairs
        Group and node of what fits an empty node.
    """

    def __init__(
        self,
        instance: PodInstance,
        groups: Groups,
        levels: Levels,
        pairs: tuple[Integers, Integers],
        *,
        cards: bool,
        move_budget: float,
    ) -> None:
        self.move_budget: float
        self.view, self.groups, self.cards, self.move_budget = instance.arrays, groups, cards, move_budget
        self.worth: Integers
        self.level, self.worth = levels.of[groups.first], levels.worth[groups.first]
        view, self.fixed = self.view, stays(self.view, move_budget)
        self.classes = classes = NodeClasses.of_instance(instance, move_budget)
        may = np.zeros((len(groups.count), len(classes.count)), bool)
        may[pairs[0], classes.of[pairs[1]]] = True
        may[self.fixed[groups.first] >= 0] = False
        self.kind: Integers
        self.group, self.kind = np.nonzero(may)
        self.node: Integers
        self.pod, self.node = groups.first[self.group], classes.first[self.kind]
        held = np.flatnonzero(self.fixed >= 0)
        self.held = [held[self.fixed[held] == n] for n in classes.first.tolist()]
        # Memory on one card, exactly; without cards, on the node as a whole.
        self.need = view.exact.gpu[self.pod, self.node] * (1 if cards else view.gpu_cards[self.pod])
        self.slots = view.gpu_cards[self.pod] if cards else np.minimum(view.gpu_cards[self.pod], 1)
        whole = view.exact.card[classes.first] * (1 if cards else view.cards[classes.first])
        self.whole, self.number = (
            whole,
            view.cards[classes.first] if cards else np.minimum(view.cards, 1)[classes.first],
        )

    def most(self, level: int, kept: Sequence[int], options: SolveOptions) -> Prices | None:
        """The bound of a level, given ``kept`` of those above, with its proof; None when there is none."""
        if len(self.group) > _COLUMNS or not len(self.group):
            return None
        use = self.level[self.group] <= level  # pods of later levels stay out
        program = self._program(use)
        x, group = program.variable("x"), self.group[use]
        for k, number in enumerate(kept):
            rows = self.level[group] == k
            if number:
                program.constrain(
                    f"kept_{k}", (x[rows] * self.worth[group[rows]].astype(np.float64)).sum(), ">=", float(number)
                )
        rows = self.level[group] == level
        program.maximize((x[rows] * self.worth[group[rows]].astype(np.float64)).sum())
        outcome = solve(program, "highs", options)
        if outcome.status is not Status.OPTIMAL or outcome.duals is None:
            return None
        return self._prices(program, outcome.duals, float(outcome.objective or 0.0), len(kept))

    def _program(self, use: Booleans) -> LinearProgram:
        view, classes = self.view, self.classes
        group, kind, pod, node = self.group[use], self.kind[use], self.pod[use], self.node[use]
        size, count = len(classes.count), classes.count.astype(np.float64)
        program = LinearProgram("admission over classes")
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
        self._cards(program, x, kind, pod, node, self.need[use], self.slots[use])
        return program

    def _cards(
        self,
        program: LinearProgram,
        x: Variables,
        kind: Integers,
        pod: Integers,
        node: Integers,
        need: Integers,
        slots: Integers,
    ) -> None:
        """Rows ``size`` and ``card`` of each class; ``self.ways`` remembers what they price."""
        view, self.ways = self.view, {}
        for c in np.unique(kind[(slots > 0) & (need > 0)]).tolist():
            mine = np.flatnonzero((kind == c) & (slots > 0) & (need > 0))
            n, held = int(self.classes.first[c]), self.held[c][view.gpu_cards[self.held[c]] > 0]
            held_need = view.exact.gpu[held, n] * (1 if self.cards else view.gpu_cards[held])
            held_slots = view.gpu_cards[held] if self.cards else np.ones(len(held), np.int64)
            sizes = np.unique(np.concatenate([need[mine], held_need[held_need > 0]]))[::-1]
            ways = fillings(sizes.tolist(), int(self.whole[c]), _WAYS) if len(sizes) < 200 else None
            count, cards = float(self.classes.count[c]), float(self.classes.count[c] * self.number[c])
            if ways is None:  # count memory, and pods of more than half a card
                self.ways[c] = (sizes, False)
                whole = int(self.whole[c])
                for name, worth, held_worth in (
                    ("gpu", need[mine] / whole, held_need / whole),
                    ("large", (2 * need[mine] > whole) * 1.0, (2 * held_need > whole) * 1.0),
                ):
                    taken = count * float((held_worth * held_slots).sum())
                    program.constrain(f"{name}_{c}", (x[mine] * (worth * slots[mine])).sum(), "<=", cards - taken)
                continue
            self.ways[c] = (sizes, True)
            table = np.array(ways, np.float64)
            z = program.variables(f"z_{c}", len(table))
            program.constrain(f"card_{c}", z.sum(), "<=", cards)
            way, s = np.nonzero(table)
            filled = (z[way] * table[way, s]).sum_by(s, len(sizes))
            of = len(sizes) - 1 - np.searchsorted(sizes[::-1], need[mine])
            used = (x[mine] * slots[mine].astype(np.float64)).sum_by(of, len(sizes))
            held_of = len(sizes) - 1 - np.searchsorted(sizes[::-1], held_need)
            on = held_need > 0
            held_slots_of = count * np.bincount(held_of[on], held_slots[on], len(sizes))
            program.constrain(f"size_{c}", used - filled, "<=", -held_slots_of)

    def _prices(self, program: LinearProgram, duals: Floats, objective: float, kept: int) -> Prices:
        """The duals over the instance's own units; signs that rounding gave are dropped."""
        blocks, view = program.constraint_blocks, self.view

        def of(name: str) -> Floats:
            return np.abs(duals[blocks[name].rows]) if name in blocks else np.zeros(1)

        sizes: list[dict[float, float]] = []
        for c in range(len(self.classes.count)):
            units, exact = self.ways.get(c, (np.zeros(0, np.int64), True))
            if exact:
                price = of(f"size_{c}")[: len(units)]
            else:
                whole = int(self.whole[c])
                price = float(of(f"gpu_{c}")[0]) * (units / whole) + float(of(f"large_{c}")[0]) * (2 * units > whole)
            shares = [unit / int(self.whole[c]) for unit in units.tolist()]
            sizes.append(dict(zip(shares, price.tolist(), strict=True)))
        capacity = view.capacity[self.classes.first]
        return Prices(
            int(np.floor(objective + 1e-6)),
            of("cpu") / capacity[:, 1],
            of("memory") / capacity[:, 2],
            tuple(sizes),
            tuple(float(of(f"kept_{k}")[0]) for k in range(kept)),
            float(of("move_budget")[0]),
        )
