r"""Pods on nodes and cards: admission level by level, then the balance of the loads, then the cost of moves.

``x[p,n]`` is 1 if pod p runs on node n, ``y[p,n,c]`` if it uses card c there. A pod asks for :math:`N_C` cores,
:math:`N_M` GB and, on each of its cards, :math:`N_G` GB; node n has c cores, m GB and cards of g GB. Equal pods are
counted (``count``), so that proofs branch on numbers without symmetry.

The load of a node is the paper's weighted utilisation, in one of its readings (`PodInstance.load_reading`). The paper's
fitness is sigma; its square is stated by outer tangents around the centre that minimises it.

Source: Sun, Wang, Xian, Xiang, which numbers no equations that survive; weights and load are reconstructed. Cards,
rules of groups, levels, fair shares and moves are ours.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from flowlex.formulations.program_arrays import Integers
from flowlex.instances.exact_rationals import rational
from flowlex.instances.pod_rule_arrays import GANG, MOST, QUOTA, SKEW
from flowlex.instances.pods import PodInstance
from flowlex.models.model_base import ModelError
from flowlex.models.pods.problem.balance_measures import SCALE, Balance
from flowlex.models.pods.problem.group_rules import in_domains, limits_of
from flowlex.models.pods.problem.placement_columns import PlacementColumns, partition

if TYPE_CHECKING:
    from flowlex.formulations.language.expressions import Expression
    from flowlex.models.problem import Problem

#: Largest number of columns of a statement by pod, node and card.
LARGEST_STATEMENT = 1_000_000
#: Largest denominator of the unit of loads and shares; loads without such a unit are rounded.
_LOAD_UNIT = 10**9
#: Largest coefficient that HiGHS accepts.
_EXACT = 10**15
#: Distances from the mean of the initial tangents, in percent of a node's capacity.
TANGENTS = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
#: Labels that pairs of pod and node have; a node label with such a name gets the prefix ``node_``.
_OWN = ("pod", "node", "card", "priority", "queue", "gang", "resource", "card_model")
_READINGS = {
    "normalised": "used shares of the node, weighted by its shares of the cluster, normalised",
    "raw": "used shares of the node, weighted by a third of its shares of the cluster",
    "equal": "used shares of the node, equally weighted",
    "cluster": "used shares of the cluster, weighted by the node's shares of it, normalised",
}
#: Rows of the balance, and its variables, which are the last.
BALANCE_ROWS = ("largest", "mean", "above", "below", "distance", "tangent")
BALANCE_VARIABLES = ("largest_load", "centre", "apart", "square", "distance")
#: Rows that no change may drop, and why.
NEEDED = {
    "pod": "a pod would run more than once",
    "running": "a running pod stops only at a price; give it a preempt_cost instead",
    "card_link": "GPU pods would run without their cards",
    "card_distinct": "a pod would use one card several times",
    **dict.fromkeys(BALANCE_ROWS, "the balance would have no meaning"),
    "count": "numbers of equal pods would have no meaning",
    "fair": "shares would have no meaning",
}
#: Names of all rows, in some variant.
ROWS = frozenset(
    {*NEEDED, "cpu", "memory", "card", "gpu", "compute", "move_budget", "gang", "gang_whole", "spread", "skew"}
    | {"emptiest", "quota", "resource"}
)


def state(
    p: Problem,
    instance: PodInstance,
    placeable: PlacementColumns,
    balance: Balance,
    *,
    fewest_moves: bool,
    points: Collection[tuple[int, Fraction]] = (),
) -> None:
    """State the problem.

    Parameters
    ----------
    p
        The problem to state.
    instance
        Nodes, pods and rules.
    placeable
        Says where each single pod may run, and its level.
    balance
        The measure; the variance in squared percent under ``deviation``.
    fewest_moves
        Whether the cost of moves is the last objective.
    points
        Further tangents of the squares: node, and distance from the mean in percent.

    Raises
    ------
    ModelError
        The instance is too large, or its numbers have too many digits.
    """
    exact, rules = instance.arrays.exact, instance.arrays.rules
    if placeable.columns > LARGEST_STATEMENT:
        raise ModelError(
            f"a changed pod placement is stated by pod, node and card: {placeable.columns} columns, at most "
            f"{LARGEST_STATEMENT}; change a smaller instance, or restrict pods by node_labels"
        )
    sides = (exact.node, exact.card, rules.capacity, rules.base)
    if exact.rounded or max(exact.whole, *(each.max(initial=0) for each in sides)) > _EXACT:
        raise ModelError("sizes of pods and nodes have no common unit that is exact; write fewer digits")
    for k in np.setdiff1d(np.flatnonzero(instance.arrays.stays), placeable.groups.first[placeable.pairs[0]])[
        :1
    ].tolist():
        raise ModelError(f"pod {instance.pods[k].name!r} must go on running, but does not fit any node it may use")
    stated = _Placing(p, instance, placeable, points if balance == "deviation" else None)
    stated.nodes()
    stated.cards() if placeable.cards else stated.gpus()
    moved = stated.moves()
    stated.limits()
    stated.gangs()
    stated.counts()
    stated.admission()
    stated.balance(balance)
    if fewest_moves and moved is not None:
        p.minimize("moves", moved, words="cost of moves")


def _index(**levels: tuple[Sequence[Any], Any]) -> Any:
    """Members by their labels: of each level all labels, and the (members,) positions among them."""
    import pandas as pd

    if len(levels) == 1:
        ((name, (labels, at)),) = levels.items()
        return pd.Index(np.array(labels, object)[at], name=name)
    known: list[Any] = [pd.Index(labels, dtype=object) for labels, _ in levels.values()]
    return pd.MultiIndex(levels=known, codes=[np.asarray(at).tolist() for _, at in levels.values()], names=list(levels))


class _Placing:
    """The variables of a problem, and what its parts share."""

    def __init__(
        self,
        p: Problem,
        instance: PodInstance,
        placeable: PlacementColumns,
        points: Collection[tuple[int, Fraction]] | None,
    ) -> None:
        pods, nodes, view = instance.pods, instance.nodes, instance.arrays
        self.p, self.instance, self.placeable, self.view = p, instance, placeable, view
        group, self.at = placeable.pairs
        self.of: Integers = placeable.groups.first[group]  # pod of each x
        self.pod_names, self.node_names = [pod.name for pod in pods], [node.name for node in nodes]
        like, first, many = partition(each.model_dump_json(exclude={"name", "created_s"}) for each in pods)
        self.like: Integers = np.where(many[like] > 1, first[like], -1)  # the first of several equal pods
        rules = view.rules
        self.quota = (rules.what == QUOTA) & (rules.topology == 0)
        #: By domain of a rule, the labels of the rule and of the domain.
        self.domains = list(zip(*(self._domain(f) for f in range(len(rules.of))), strict=True)) or [(), ()]
        every = [(n, Fraction(sign * a)) for a in TANGENTS for sign in (-1.0, 1.0) for n in range(len(nodes))]
        self.points = list(dict.fromkeys((*every, *points))) if points is not None else []
        self.pod_labels: dict[str, list[Any]] = {
            "priority": [pod.priority for pod in pods],
            "queue": [pod.queue or "" for pod in pods],
            "gang": [pod.gang or "" for pod in pods],
            "resource": ["gpu" if pod.wants_gpu else "cpu" for pod in pods],
        }
        self.node_labels: dict[str, list[Any]] = {"card_model": [node.card_model or "" for node in nodes]}
        for key in dict.fromkeys(key for node in nodes for key in node.labels):
            name = f"node_{key}" if key in _OWN else key
            self.node_labels[name] = [node.labels.get(key, "") for node in nodes]
        more: dict[str, list[Any]] = {
            "card": list(range(int(view.cards.max(initial=0)) if placeable.cards else 0)),
            "queue": [queue.name for queue in instance.queues],
            "gang": [gang.name for gang in instance.gangs],
            "resource": ["gpus", "cpu_cores", "memory_gb", "pods", *(each.name for each in instance.resources)],
            "spread": [spread.name for spread in instance.spreads],
            "domain": [d for d, r in zip(self.domains[1], rules.of.tolist(), strict=True) if not self.quota[r]],
            "like": [pods[q].name for q in np.unique(self.like[self.like >= 0]).tolist()],
            "rank": list(range(1, len(placeable.levels.weight) + 1)),
            "at": [str(at) for _, at in self.points],
        }
        said = {"like": "equal pods, by the first of them", "at": "tangents", "domain": "domains of rules"}
        p.set("pod", self.pod_names, words="pods")
        p.set("node", self.node_names, words="nodes")
        for level, own in ({name: [] for name in more} | self.pod_labels | self.node_labels).items():
            if distinct := dict.fromkeys([*own, *more.get(level, ())]):
                p.set(level, distinct, words=said.get(level, ""))
        self.x = p.variables("x", over=self._pairs(self.of, self.at), binary=True, words="a pod runs on a node")

    def _domain(self, flat: int) -> tuple[str, str]:
        """Names of the rule and of the domain, or of what a quota counts."""
        rules = self.view.rules
        r = int(rules.of[flat])
        before, name = rules.names[r].split("'", 1)
        if self.quota[r]:
            return name[:-1], before.split(" ", 1)[0]
        where = self.instance.nodes[int(np.argmax(rules.domain[rules.topology[r]] == flat - rules.offset[r]))]
        key = rules.keys[r]
        return name[:-1], "cluster" if not key else where.name if key == "node" else where.labels[key]

    def _pairs(self, pod: Integers, node: Integers, **card: Any) -> Any:
        """Pods on nodes, with labels of both."""
        import pandas as pd

        both = ((self.pod_labels, pod), (self.node_labels, node))
        labels = {name: np.array(each, object)[of] for known, of in both for name, each in known.items()}
        return pd.DataFrame(labels, index=_index(pod=(self.pod_names, pod), node=(self.node_names, node), **card))

    def _at(self, x: Integers, **more: Any) -> Any:
        """Labels of columns x by pod and node, with further levels."""
        return _index(pod=(self.pod_names, self.of[x]), node=(self.node_names, self.at[x]), **more)

    def _data(self, symbol: str, values: Any, index: Any, words: str, unit: str = "", scale: Any = 1) -> Expression:
        """Data by an index; ``pod`` or ``node``: by all of these."""
        import pandas as pd

        if isinstance(index, str):
            names = self.pod_names if index == "pod" else self.node_names
            index = _index(**{index: (names, np.arange(len(names)))})
        return self.p.data(symbol, pd.Series(values, index), words=words, unit=unit, scale=scale)

    # ---- pods, nodes and cards

    def nodes(self) -> None:
        """A pod runs at most once; nodes have so many cores and so much memory."""
        p, x, exact, node = self.p, self.x, self.view.exact, self.instance.nodes[0]
        once, stays = x.sum(by="pod"), self.view.stays
        for name, mine in (("pod", ~stays), ("running", stays)):
            runs = once if mine.all() else once.sel(pod=[self.pod_names[k] for k in np.flatnonzero(mine).tolist()])
            if name == "pod" and mine.any():
                p.constrain("pod", runs <= 1, words="a pod runs at most once")
            elif mine.any():
                p.constrain("running", runs == 1, words="what runs goes on, unless it may be stopped")
        cpu, memory = rational(node.cpu_cores) / int(exact.node[0, 0]), rational(node.memory_gb) / int(exact.node[0, 1])
        asked = self._data(r"\mathrm{N}^C", exact.cpu, "pod", "cores that a pod asks for", "cores", cpu)
        has = self._data("c", exact.node[:, 0], "node", "cores of a node", "cores", cpu)
        p.constrain("cpu", (x * asked).sum(by="node") <= has, words="cores of a node")
        asked = self._data(r"\mathrm{N}^M", exact.memory, "pod", "memory that a pod asks for", "GB", memory)
        has = self._data("m", exact.node[:, 1], "node", "memory of a node", "GB", memory)
        p.constrain("memory", (x * asked).sum(by="node") <= has, words="memory of a node")

    @property
    def _gb(self) -> Fraction:
        """GB of one unit of GPU memory."""
        each = zip(self.instance.nodes, self.view.exact.card.tolist(), strict=True)
        return next((rational(node.card_gb) / size for node, size in each if node.cards), Fraction(1))

    def cards(self) -> None:
        """GPU memory and compute of cards; a GPU pod gets as many different cards as it asks for."""
        p, x, view, exact = self.p, self.x, self.view, self.view.exact
        pair, card = self.placeable.card_slots
        if not len(pair):
            return
        pod, node = self.of[pair], self.at[pair]
        number = card - (np.cumsum(view.cards) - view.cards)[node]
        over = self._pairs(pod, node, card=(range(int(view.cards.max())), number))
        y = p.variables("y", over=over, binary=True, words="a pod uses a card")
        one = np.unique(pair)
        gpu = exact.gpu[self.of[one], self.at[one]]
        need = self._data(r"\mathrm{N}^G", gpu, self._at(one), "request on each card", "GB", self._gb)
        size = self._data("g", exact.card, "node", "size of a card", "GB", self._gb)
        p.constrain("card", (y * need).sum(by=["node", "card"]) <= size, words="memory of a card")
        if exact.compute.any():
            part = self._data("e", exact.compute, "pod", "share of a card's compute", "", Fraction(1, exact.whole))
            p.constrain("compute", (y * part).sum(by=["node", "card"]) <= 1, words="compute of a card")
        many, used = self._data("k", view.gpu_cards, "pod", "cards that a pod uses"), y.sum(by=["pod", "node"])
        p.constrain("card_link", used == x.reindex(used) * many, words="a GPU pod gets its cards")
        if self.placeable.several.any():
            several = [self.pod_names[k] for k in np.unique(pod[self.placeable.several]).tolist()]
            p.constrain("card_distinct", y.sel(pod=several) <= x, words="each of them once")

    def gpus(self) -> None:
        """GPU memory and compute of nodes, as in the paper."""
        p, x, view, exact = self.p, self.x, self.view, self.view.exact
        need = exact.gpu[self.of, self.at] * view.gpu_cards[self.of]
        pairs = self._at(np.arange(len(self.of)))
        asked = self._data(r"\mathrm{N}^G", need, pairs, "request of a pod", "GB", self._gb)
        size = self._data("g", exact.card * view.cards, "node", "GPU memory of a node", "GB", self._gb)
        p.constrain("gpu", (x * asked).sum(by="node") <= size, words="GPU memory of a node")
        if exact.compute.any():
            part = self._data("e", exact.compute * view.gpu_cards, "pod", "compute", "cards", Fraction(1, exact.whole))
            has = self._data("k", view.cards, "node", "cards of a node")
            p.constrain("compute", (x * part).sum(by="node") <= has, words="compute of all cards")

    def moves(self) -> Expression | None:
        """The cost of moves, within the budget; None if no running pod may move."""
        placeable, away = self.placeable, np.flatnonzero(self.placeable.moved)
        if not len(away):
            return None
        some, unit = self._at(away), placeable.move_unit
        cost = np.rint(self.view.move_cost[self.of[away]] * unit).astype(np.int64)
        price = self._data("b", cost, some, "cost of moving a pod", "", Fraction(1, unit))
        moved = (self.x.reindex(some) * price).sum()
        self.p.constrain("move_budget", moved <= rational(placeable.move_budget), words="moves are limited")
        return moved

    # ---- rules of groups

    def _of_rules(self, names: Sequence[str], flat: Integers) -> dict[str, Any]:
        """Labels of rules and of their domains (numbers over all rules), as `_index` takes them."""
        found = {}
        for name, labels in zip(names, self.domains, strict=False):
            of, first, _ = partition(labels)
            found[name] = [labels[f] for f in first.tolist()], of[flat]
        return found

    def limits(self) -> None:
        """Spreads, quotas and resources: what the pods of a rule use in each of its domains."""
        p, rules, limit = self.p, self.view.rules, limits_of(self.view)
        column, amount, domain = in_domains(self.view, self.of, self.at)
        for name, these, names, words in (
            ("spread", rules.what == MOST, ("spread", "domain"), "pods in a domain, unless more run there already"),
            ("quota", self.quota, ("queue", "resource"), "what a queue uses, unless more runs already"),
            ("resource", (rules.what == QUOTA) & ~self.quota, ("resource", "domain"), "unless more is in use already"),
            ("skew", rules.what == SKEW, ("spread", "domain"), "a domain is at most so far above the emptiest"),
        ):
            mine = np.flatnonzero(these[rules.of[domain]])
            if not len(mine) and not (name == "skew" and these.any()):
                continue
            flat, pod = domain[mine], self.of[column[mine]]
            table = self._at(column[mine], **self._of_rules(names, flat))
            used = self.x.sum(by=["pod", "node"]).join(table)
            if (amount[mine] != 1).any():
                _, one = np.unique(pod * len(rules.what) + rules.of[flat], return_index=True)
                keys = self._of_rules(names if name == "quota" else names[:1], flat[one])
                index = _index(pod=(self.pod_names, pod[one]), **keys)
                used = used * self._data("a", amount[mine][one], index, "request of a resource")
            held, there = used.sum(by=names), np.unique(flat)
            index = _index(**self._of_rules(names, there))
            side = self._data(rf"\ell^{{\mathrm{{{name}}}}}", limit[there], index, f"limit: {words}")
            if name != "skew":
                p.constrain(name, held <= side, words=words)
                continue
            skewed = [rules.names[r].split("'", 1)[1][:-1] for r in np.flatnonzero(these).tolist()]
            upper, said = float(len(self.pod_names)), "pods in the emptiest domain"
            emptiest = p.variables("emptiest", spread=skewed, upper=upper, integer=True, words=said)
            p.constrain(name, held - emptiest <= side, words=words)
            counted = _index(**self._of_rules(names, np.flatnonzero(rules.counted)))
            p.constrain("emptiest", held.reindex(counted) >= emptiest, words="the emptiest domain")

    def gangs(self) -> None:
        """A gang is completely in one domain, or nowhere."""
        import pandas as pd

        p, rules, names = self.p, self.view.rules, ("gang", "domain")
        if not rules.has(GANG):
            return
        each = np.flatnonzero(rules.what[rules.of] == GANG)
        gangs = [rules.names[r].split("'", 1)[1][:-1] for r in np.flatnonzero(rules.what == GANG).tolist()]
        z = p.variables("z", over=_index(**self._of_rules(names, each)), binary=True, words="a gang is in a domain")
        p.constrain("gang", z.sum(by="gang").sel(gang=gangs) <= 1, words="a gang is in one domain or in none")
        column, _, domain = in_domains(self.view, self.of, self.at)
        mine = np.flatnonzero(rules.what[rules.of[domain]] == GANG)
        inside = self._at(column[mine], domain=self._of_rules(names, domain[mine])["domain"])
        held = self.x.sum(by=["pod", "node"]).join(inside).sum(by=["pod", "domain"])
        pairs = [(q, int(f)) for q in np.flatnonzero(rules.gang >= 0) for f in each if rules.of[f] == rules.gang[q]]
        pod, flat = np.array(pairs, np.int64).reshape(-1, 2).T
        members = _index(pod=(self.pod_names, pod), domain=self._of_rules(names, flat)["domain"])
        of_gang = np.array(self.pod_labels["gang"], object)[pod]
        whole = z.at(pd.DataFrame({"gang": of_gang}, index=members), gang="gang", domain="domain")
        p.constrain("gang_whole", held.reindex(members) == whole, words="all pods of a gang are placed there, or none")

    # ---- objectives

    def counts(self) -> None:
        """Count equal pods on each node."""
        self.alone: Integers = np.flatnonzero(self.like[self.of] < 0)
        several = np.flatnonzero(self.like[self.of] >= 0)
        key = self.like[self.of] * len(self.node_names) + self.at
        #: One x of each number.
        self.first: Integers = several[np.unique(key[several], return_index=True)[1]]
        self.count: Expression | None = None
        if not len(several):
            return
        one = self.first
        index = _index(like=(self.pod_names, self.like[self.of[one]]), node=(self.node_names, self.at[one]))
        upper = np.bincount(self.like[self.like >= 0])[self.like[self.of[one]]].astype(np.float64)
        self.count = self.p.variables("count", over=index, upper=upper, integer=True, words="equal pods on a node")
        equal = np.flatnonzero(self.like >= 0)
        table = _index(pod=(self.pod_names, equal), like=(self.pod_names, self.like[equal]))
        there = self.x.sum(by=["pod", "node"]).join(table).sum(by=["like", "node"])
        self.p.constrain("count", there.reindex(index) == self.count, words="numbers of equal pods")

    def _total(self, symbol: str, weight: Integers, words: str, scale: Fraction, by: str | None = None) -> Expression:
        """Sums of weight times x ((columns x,) weights, equal for equal pods), over numbers of equal pods."""
        parts: list[Expression] = []
        for variables, of in ((self.x, self.alone), (self.count, self.first)):
            if variables is None or not len(used := of[weight[of] != 0]):
                continue
            level, each = ("pod", self.of[used]) if variables is self.x else ("like", self.like[self.of[used]])
            pairs = _index(**{level: (self.pod_names, each)}, node=(self.node_names, self.at[used]))
            known = weight[used], pairs
            if by is None:  # the same on all nodes
                one = np.unique(each, return_index=True)[1]
                known = weight[used[one]], _index(**{level: (self.pod_names, each[one])})
            parts.append((variables.reindex(pairs) * self._data(symbol, *known, words, "", scale)).sum(by=by))
        return parts[0] + parts[1] if len(parts) > 1 else parts[0] if parts else self.x.sum(by=by) * 0

    def admission(self) -> None:
        """Maximise the value of each level; for fair admission the sums of the 1, 2, ... least shares first."""
        levels = self.placeable.levels
        queues = [str(key).removeprefix("queue ") for key in levels.keys[: len(levels.weight)]]
        if queues:
            self._least_shares(queues)
        for k in range(len(queues), len(levels.keys)):
            value = np.where(levels.of == k, levels.worth, 0)[self.of]
            words = f"pods of level {levels.keys[k]}, or what they are worth"
            total = self._total("v", value, "what a pod is worth, or 1", levels.unit[k])
            self.p.maximize(f"admission {levels.keys[k]}", total, words=words)

    def _least_shares(self, queues: list[str]) -> None:
        """Sums of the least shares of queues, in multiples of a common unit so that they are integral (Ogryczak)."""
        p, levels = self.p, self.placeable.levels
        step = [unit / weight for unit, weight in zip(levels.unit, levels.weight, strict=False)]
        start = levels.shares([0] * len(queues))
        whole = math.lcm(*(each.denominator for each in (*step, *start)))
        top = max(levels.shares(levels.total(levels.of >= 0))) * whole
        if top > _LOAD_UNIT:
            raise ModelError("shares of queues have no common unit that is exact; write weights with fewer digits")
        ranks = range(1, len(queues) + 1)
        level = p.variables("level", rank=ranks, upper=float(top), integer=True, words="a bound of the least shares")
        below = p.variables(
            "below", rank=ranks, queue=queues, upper=float(top), integer=True, words="what a share lacks to it"
        )
        each = zip(levels.of.tolist(), levels.worth.tolist(), strict=True)
        part = [int(worth * step[k] * whole) if 0 <= k < len(queues) else 0 for k, worth in each]
        given = [int(each * whole) for each in start]
        v = self._data("v", np.array(part), "pod", "what a pod adds to the share of its queue")
        s = self._data("s", np.array(given), _index(queue=(queues, np.arange(len(queues)))), "share of what runs")
        share = (self.x * v).sum(by="queue").sel(queue=queues)
        p.constrain("fair", level - below - share <= s, words="no bound exceeds a share by more than is lacking")
        for k in ranks:
            least = level.sel(rank=k) * k - below.sel(rank=k).sum()
            p.maximize(f"admission fair {k}", least * Fraction(1, whole), words=f"the {k} least shares together")

    def balance(self, measure: Balance) -> None:
        """Minimise the largest load, the mean absolute deviation, or the variance."""
        p, names = self.p, self.node_names
        load, unit = _loads(self.instance)
        words = "load of a pod on a node: " + _READINGS[self.instance.load_reading]
        loads = self._total("u", load[self.of, self.at], words, Fraction(1, unit), "node")
        top = float(-(-int(load.sum(axis=0).max(initial=0)) // unit))
        if measure == "max_load":
            largest = p.variables("largest_load", upper=top, words="the largest load")
            p.constrain("largest", loads <= largest, words="no load is larger")
            p.minimize("balance", largest, words="the largest load")
        elif measure == "mean_absolute":
            centre = p.variables("centre", upper=top, words="the mean load")
            apart = p.variables("apart", node=names, upper=top, words="distance of a load from the mean")
            p.constrain("mean", loads.sum() == centre * len(names), words="the mean load")
            p.constrain("above", loads - centre <= apart, words="loads above the mean")
            p.constrain("below", loads - centre >= -apart, words="loads below the mean")
            p.minimize("balance", apart.sum() * Fraction(1, len(names)), words="mean distance from the mean load")
        else:
            top *= SCALE
            centre = p.variables("centre", upper=top, words="centre of the loads, in percent")
            square = p.variables("square", node=names, upper=top * top, words="square of the distance")
            distance = p.variables("distance", node=names, lower=-top, upper=top, words="of a load from the centre")
            p.constrain("distance", loads * int(SCALE) == centre + distance, words="loads in percent")
            distances = list(dict.fromkeys(at for _, at in self.points))
            number, texts = {at: k for k, at in enumerate(distances)}, [str(at) for at in distances]
            node, at = np.array([(n, number[at]) for n, at in self.points], np.int64).T
            pairs = _index(node=(names, node), at=(texts, at))
            by_point = _index(at=(texts, np.arange(len(texts))))
            a = self._data(r"\tau", [float(at) for at in distances], by_point, "where a tangent touches", "%")
            tangent = distance.at(pairs, node="node") * a * 2 - a * a
            p.constrain("tangent", square.at(pairs, node="node") >= tangent, words="outer tangents of the square")
            p.minimize("balance", square.sum() * Fraction(1, len(names)), words="variance of the loads", unit="%^2")


def _loads(instance: PodInstance) -> tuple[Integers, int]:
    """(P, N) load of each pod on each node, as integer multiples of 1 / (the number returned)."""
    nodes, pods, view = instance.nodes, instance.pods, instance.arrays
    has = [[rational(n.card_gb) * n.cards, rational(n.cpu_cores), rational(n.memory_gb)] for n in nodes]
    total = [sum(column, Fraction(0)) for column in zip(*has, strict=True)]
    first_pod, first_node = (np.unique(k, return_index=True)[1].tolist() for k in (view.load.row, view.load.column))
    table: list[list[Fraction]] = [[] for _ in first_pod]
    for n in first_node:
        rate = _rates(has[n], total, instance.load_reading)
        for r, p in enumerate(first_pod):
            pod = pods[p]
            gpu = (rational(pod.gpu_memory_gb) + rational(pod.gpu_share) * rational(nodes[n].card_gb)) * pod.gpu_cards
            used = (gpu, rational(pod.cpu_cores), rational(pod.memory_gb))
            table[r].append(sum(((u * w) for u, w in zip(used, rate, strict=True)), Fraction(0)))
    unit = min(_LOAD_UNIT, math.lcm(*(load.denominator for row in table for load in row)))
    whole = np.array([[round(load * unit) for load in row] for row in table], np.int64)
    return whole.reshape(len(first_pod), len(first_node))[np.ix_(view.load.row, view.load.column)], unit


def _rates(has: Sequence[Fraction], total: Sequence[Fraction], reading: str) -> list[Fraction]:
    """Load per unit of each resource, on a node with the amounts ``has`` of a cluster with ``total``."""
    share = [h / t if t else Fraction(0) for h, t in zip(has, total, strict=True)]
    if reading == "equal":
        share = [Fraction(h > 0) for h in has]
    whole = Fraction(3) if reading == "raw" else sum(share, Fraction(0))
    of = total if reading == "cluster" else has
    return [s / whole / o if h else Fraction(0) for s, h, o in zip(share, has, of, strict=True)]
