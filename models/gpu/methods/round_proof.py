r"""The proof of a round: multipliers of the rows of its program, for each objective and each leaf of the search.

Fair shares. Let A be the jobs that run fewer than k tasks although they have more, and U the GPUs that their waiting
tasks could use; then all jobs that use U, and the GPUs that these could use too. All of U is used by A, so with
multipliers 1 of ``gpu_out`` on U and of ``share`` on A no answer gives more jobs k tasks, among those that give as many
jobs 1, ..., k - 1 tasks. These cuts, taken often enough, also keep every job between floor and ceiling of its share.

Transfer, stops, waiting. The potentials of the flow network are prices of GPUs and jobs. The costs of the network hold
rewards that break ties; each objective is proven by the same prices, up to less than one unit of it.

Preemption. Multipliers of ``order`` and ``keep`` hand what a task that must stay gains, or what a task that must stop
loses, to the task that the search has branched on. Where only few tasks may stop, ``x >= 1`` is derived for the rest.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from flowlex.formulations.block_labels import label_text
from flowlex.formulations.program_arrays import Integers
from flowlex.models.gpu.methods.rounds import GpuRun, Leaf, Node, Ties
from flowlex.models.gpu.round_eligibility import plan_round
from flowlex.models.gpu.transfer_costs import TransferCosts

Document: TypeAlias = dict[str, Any]
Mask: TypeAlias = NDArray[np.bool_]


@dataclass(eq=False)
class Prover:
    """Makes the proof of a run, once; what it is made from is not pickled."""

    run: GpuRun
    costs: TransferCosts
    ties: Ties

    @cached_property
    def proof(self) -> Document:
        """The proof in names of the instance; empty if a network has no dual values."""
        run = self.run
        if run.root is None or run.leaf is None:
            return {}
        proof = _RoundProof(run.leaf, self.costs, self.ties)
        for leaf, path in _paths(run.root, ()):
            if not proof.add(leaf, path):
                return {}
        if not run.proven:
            for stage in ("stops", "waiting"):
                proof.stages.pop(stage, None)
        derived = {"derived": [row for row, _ in proof.derived.values()]} if proof.derived else {}
        stages, of = dict[str, Any](), dict[tuple[int, ...], str]()
        for name, leaves in proof.stages.items():  # steps that the same cuts prove
            first = of.setdefault(tuple(map(id, leaves)), name)
            stages[name] = leaves if first == name else first
        return {
            "format": 3,
            "shared": {text: rows for rows, text in proof.shared.values()},
            "stages": stages,
            **derived,
        }

    def __getstate__(self) -> dict[str, Document]:
        return {"proof": self.proof}


#: A task that the search has branched on, and whether it continues.
_Branch: TypeAlias = tuple[int, bool]


def _paths(node: Node, path: tuple[_Branch, ...]) -> Iterator[tuple[Leaf | None, tuple[_Branch, ...]]]:
    if node.task is None:
        yield node.leaf, path
        return
    for part, kept in zip(node.parts, (True, False), strict=True):
        yield from _paths(part, (*path, (node.task, kept)))


@dataclass
class _RoundProof:
    """The proof while leaves are added."""

    best: Leaf
    costs: TransferCosts
    ties: Ties
    stages: dict[str, list[Document]] = field(default_factory=dict)
    #: Multipliers that leaves share, and their names, by content.
    shared: dict[Any, tuple[Document, str]] = field(default_factory=dict)
    #: Derived rows and their numbers, by the task that continues.
    derived: dict[int, tuple[Document, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        view, plan = self.best.plan.view, self.best.plan
        self.view, self.policy, self.priced = view, plan.policy, plan.priced
        self.held = view.task_running_gpu >= 0
        jobs = len(view.job_names)
        self.most = np.minimum(np.bincount(view.task_job, minlength=jobs), len(view.gpu_names))
        self.counts = np.bincount(view.task_job[self.best.gpu >= 0], minlength=jobs)
        self.steps = int(self.most.max(initial=0)) if self.policy.fair and not self.priced else 0
        self.reached = _reached(self.counts, self.steps)
        self.stoppable = plan.stoppable
        self.moves_out = self.policy.preemptive and bool(self.held.any())
        names = [f"share_{k}" for k in range(1, self.steps + 1)] + ([] if self.priced else ["running"]) + ["transfer"]
        names += (["stops"] if self.moves_out else []) + (["waiting"] if self.priced else [])
        self.stages = {name: [] for name in names}
        self.own_gpu = np.where(self.held, view.task_running_gpu, 0)

    def add(self, leaf: Leaf | None, path: tuple[_Branch, ...]) -> bool:
        """Add a leaf to every stage; False if there is no proof of it."""
        if leaf is None:
            return self._add_empty(path)
        part = _LeafProof(self, leaf, path)
        better = zip(_reached(part.counts, self.steps), self.reached, strict=True)
        worse = next((k for k, (mine, best) in enumerate(better) if mine < best), None)
        for k in range(1, self.steps + 1):
            if worse is not None and k > worse:
                break
            self.stages[f"share_{k}"].append(part.fair(k))
        if worse is not None:
            for name in list(self.stages)[worse:]:
                self.stages[name].append(part.less_fair(worse))
            return True
        if "running" in self.stages:
            self.stages["running"].append(part.running())
        found = part.prices()
        if found is None:
            return False
        weight = self.ties.factor / self.costs.unit_s
        stop, start = self.ties.base * self.ties.steps, self.ties.base
        own = {"transfer": weight, "stops": Fraction(stop), "waiting": Fraction(start)}
        for name in self.stages:
            if name in own:
                self.stages[name].append(part.least(name, own, found))
        return True

    def _add_empty(self, path: tuple[_Branch, ...]) -> bool:
        """A leaf in which a job would stop more tasks than it may, or keep more than its share."""
        view, kept, stopped = (
            self.view,
            np.zeros(len(self.view.task_job), bool),
            np.zeros(len(self.view.task_job), bool),
        )
        for task, stays in path:
            same = self.held & (view.task_job == view.task_job[task])
            with_it = kept if stays else stopped
            with_it |= same & ((view.task_elapsed - view.task_elapsed[task]) * (1 if stays else -1) > 0)
            with_it[task] = True
        lost = np.bincount(view.task_job[stopped], minlength=len(view.job_names))
        over = np.flatnonzero(lost > self.stoppable)[:1]
        reduced = np.zeros(len(view.task_job), object)
        shares: Document = {}
        if not len(over):
            shares, over, kept = self._over_shares(kept, stopped)
            if not len(over):
                return False
        reduced[self.held & np.isin(view.task_job, over)] = 1 if shares else -1
        hands = _Hands(self, path, reduced, kept, stopped)
        if shares:
            hands.limit()
            hands.down()
        else:
            hands.stops[int(over[0])] = 1
        hands.up()
        document = hands.document()
        document = {**document, "own": 0, "branches": self.branches(path)}
        document["rows"] = {**document.get("rows", {}), **shares}
        for leaves in self.stages.values():
            leaves.append(document)
        return True

    def _over_shares(self, kept: Mask, stopped: Mask) -> tuple[Document, Integers, Mask]:
        """Multipliers of shares that tasks which stay exceed, the jobs that exceed them, and these tasks."""
        view, shares = self.view, self.best.plan.shares
        assert shares is not None
        stay = plan_round(view, self.policy, kept, stopped, priced=True).kept & self.held
        count = np.bincount(view.task_job[stay], minlength=len(view.job_names))
        over = np.flatnonzero(count > shares.most)[:1]
        odd = shares.least < shares.most
        more: Document = {}
        for top in sorted({*shares.most[odd].tolist()} if not len(over) else ()):
            mine = np.flatnonzero(odd & (shares.most == top))
            total = int(shares.group_total[shares.group[mine[0]]] - shares.least[mine].sum())
            if int((count > shares.least)[mine].sum()) > total:
                over, more = mine[(count > shares.least)[mine]], {"odd": {"at": {str(top): -1}}}
                break
        return {"share": {"at": {view.job_names[j]: -1 for j in over.tolist()}}, **more}, over, stay

    def branches(self, path: tuple[_Branch, ...]) -> list[Document]:
        """Branches of a path."""
        return [
            {"row": [["x", self.pair(task), 1]], "relation": ">=" if kept else "<=", "side": int(kept)}
            for task, kept in path
        ]

    def pair(self, task: int) -> str:
        """Label of a running task on its GPU."""
        return label_text((self.view.task_names[task], self.view.gpu_names[self.own_gpu[task]]))

    def share_between(self, rows: dict[str, tuple[NDArray[Any], tuple[str, ...]]]) -> str:
        """Name of multipliers that leaves share."""
        key = tuple((name, y.tobytes() if y.dtype != object else tuple(y.tolist())) for name, (y, _) in rows.items())
        if key not in self.shared:
            made = {name: _by_label(y, labels) for name, (y, labels) in rows.items() if y.any()}
            self.shared[key] = made, f"multipliers {len(self.shared) + 1}"
        return self.shared[key][1]

    def certain(self, job: int) -> list[int]:
        """The shortest-running tasks that stay because so many of their job run shorter."""
        view, may = self.view, int(self.stoppable[job])
        mine = np.flatnonzero(self.held & (view.task_job == job))
        longer = mine[view.task_elapsed[mine] > np.sort(view.task_elapsed[mine])[may - 1]] if may else mine[:0]
        found: list[int] = longer[view.task_elapsed[longer] == view.task_elapsed[longer].min(initial=np.inf)].tolist()
        return found

    def derive(self, task: int) -> int:
        """Number of the derived row ``x[task] >= 1``."""
        if task not in self.derived:
            view, job = self.view, int(self.view.task_job[task])
            mine = self.held & (view.task_job == job)
            stopped = mine & (view.task_elapsed < view.task_elapsed[task])
            stopped[task] = True
            reduced = np.zeros(len(mine), object)
            reduced[mine] = -1
            hands = _Hands(self, ((task, False),), reduced, np.zeros(len(mine), bool), stopped)
            hands.stops[job] = 1
            hands.up()
            cases = [
                {"own": 0, "branches": self.branches(((task, False),)), **hands.document()},
                {"branches": self.branches(((task, True),))},
            ]
            row = {"row": [["x", self.pair(task), 1]], "stage": 0, "cases": cases}
            self.derived[task] = row, len(self.derived)
        return self.derived[task][1]


def _reached(counts: Integers, steps: int) -> list[int]:
    """For 0, 1, ..., ``steps`` how many jobs run so many tasks."""
    fewer = np.searchsorted(np.sort(counts), np.arange(steps + 1))
    return (len(counts) - fewer).tolist()  # type: ignore[no-any-return]


def _by_label(values: NDArray[Any], labels: tuple[str, ...]) -> Document:
    """Values by label, with a default if most are equal."""
    listed = values.tolist()
    common, times = Counter(listed).most_common(1)[0]
    default = common if common and times > len(listed) // 2 else 0
    at = {labels[k]: v for k, v in enumerate(listed) if v != default}
    return {"default": default, "at": at} if default else {"at": at}


@dataclass(frozen=True, eq=False)
class _Cut:
    """Jobs A and GPUs U, such that the jobs' tasks use all of U, and could use nothing else."""

    jobs: Mask
    gpus: Mask


class _LeafProof:
    """The multipliers of one leaf."""

    def __init__(self, proof: _RoundProof, leaf: Leaf, path: tuple[_Branch, ...]) -> None:
        self.proof, self.leaf, self.path, self.view = proof, leaf, path, proof.view
        self.counts = np.bincount(self.view.task_job[leaf.gpu >= 0], minlength=len(self.view.job_names))
        self._cuts: dict[bytes, _Cut] = {}
        self._fair: dict[int, Document] = {}  # by number of short jobs
        #: How many tasks each job runs that has more, ascending.
        self._reached = sorted(self.counts[self.counts < proof.most].tolist())

    def cut(self, jobs: Mask) -> _Cut:
        """The least cut with these jobs."""
        if jobs.tobytes() in self._cuts:
            return self._cuts[jobs.tobytes()]
        view, plan, at = self.view, self.leaf.plan, self.leaf.gpu
        a, u = jobs.copy(), np.zeros(len(view.gpu_names), bool)
        starts, optional = plan.startable, plan.optional
        placed, own = at[starts], view.task_running_gpu[optional]
        stays = at[optional] >= 0
        while True:
            wants = a[view.task_job[starts]] & ((placed < 0) | u[placed])
            need = view.task_memory[starts[wants]].min(initial=np.inf)
            more = u | (view.gpu_memory >= need)
            more[own[a[view.task_job[optional]] & ~stays]] = True
            users = np.concatenate([starts[(placed >= 0) & more[placed]], optional[stays & more[own]]])
            grown = a.copy()
            grown[view.task_job[users]] = True
            if (more == u).all() and (grown == a).all():
                break
            a, u = grown, more
        self._cuts[jobs.tobytes()] = found = _Cut(a, u)
        return found

    def _document(
        self, price: NDArray[Any], share: NDArray[Any], held: NDArray[Any], more: dict[str, Any] | None = None
    ) -> Document:
        """A leaf with prices of GPUs and jobs; ``held``: what each running task's column costs beside them."""
        proof, view, leaf = self.proof, self.view, self.leaf
        rows: dict[str, Any] = {"gpu_out": (-price, view.gpu_names), "share": (share, view.job_names), **(more or {})}
        if not proof.policy.fair:
            del rows["share"]
        document: Document = {"branches": proof.branches(self.path)} if self.path else {}
        if any(y.any() for y, _ in rows.values()):
            document["shared"] = proof.share_between(rows)
        steady = proof.held.any() and not proof.policy.preemptive
        columns = bool(len(leaf.plan.startable)) or bool(proof.held.any())
        document["complete"] = (["stay"] if steady else []) + (["task"] if columns else [])
        if proof.moves_out:
            worth = share if proof.policy.fair else np.zeros(len(view.job_names), np.int64)
            reduced = np.where(proof.held, held + price[proof.own_gpu] - worth[view.task_job], 0).astype(object)
            hands = _Hands(proof, self.path, reduced, leaf.plan.kept & proof.held, leaf.stopped)
            hands.limit()
            hands.down()
            hands.up()
            document |= hands.document()
        return document

    def _by_cut(self, jobs: Mask) -> tuple[NDArray[Any], NDArray[Any]]:
        if not jobs.any():
            return np.zeros(len(self.view.gpu_names), np.int64), np.zeros(len(jobs), np.int64)
        found = self.cut(jobs)
        return found.gpus.astype(np.int64), found.jobs.astype(np.int64)

    def _short(self, k: int) -> Mask:
        """Jobs that run fewer than k tasks although they have more."""
        short: Mask = self.counts < np.minimum(k, self.proof.most)
        return short

    def fair(self, k: int) -> Document:
        """No answer gives more jobs k tasks."""
        short = bisect_left(self._reached, k)  # the number of jobs in `_short(k)`, which determines them
        if short not in self._fair:
            price, share = self._by_cut(self._short(k))
            nothing = np.zeros(len(self.proof.held), np.int64)
            self._fair[short] = {**self._document(price, share, nothing), "earlier": -1}
        return self._fair[short]

    def less_fair(self, k: int) -> Document:
        """No answer of the leaf gives as many jobs k tasks."""
        document = self.fair(k)
        return {**document, "own": 0, "earlier": {f"share_{s}": -1 for s in range(1, k + 1)}}

    def running(self) -> Document:
        """No answer runs more tasks."""
        fair = self.proof.policy.fair
        price, inside = self._by_cut(self._short(self.proof.steps) if fair else np.ones(len(self.counts), bool))
        return self._document(price, inside - 1, -np.ones(len(self.proof.held), np.int64))

    def prices(self) -> tuple[NDArray[Any], NDArray[Any], dict[str, Any], dict[str, Any]] | None:
        """Prices of GPUs and jobs from the potentials, of other rows, and of earlier objectives."""
        found = _potential_prices(self.leaf, self.proof.ties.start)
        if found is None:
            return None
        proof, plan, counts = self.proof, self.leaf.plan, self.counts
        price, worth = (np.asarray(each, object) for each in found)
        wait = proof.costs.waiting * proof.ties.factor
        if not proof.policy.fair:
            least = int(worth.min(initial=0))
            if least < 0:
                gpus, _ = self._by_cut(np.ones(len(counts), bool))
                price = price - least * gpus.astype(object)
            return price, 0 * worth, {}, {"running": -max(int(worth.max(initial=0)), 0)}
        share = worth - wait
        assert plan.shares is not None
        if proof.priced:
            limited = counts >= plan.shares.least
            share = np.where(limited, np.minimum(share, 0), 0)
            odd = plan.shares.least < plan.shares.most
            labels, rest = [], []
            for top in sorted({*plan.shares.most[odd].tolist()}):
                mine = odd & (plan.shares.most == top)
                chosen = mine & (counts == plan.shares.most)
                total = int(plan.shares.group_total[plan.shares.group[mine][0]] - plan.shares.least[mine].sum())
                tight = int(chosen.sum()) >= total > 0
                q = int((-share[chosen]).min()) if tight else 0
                share[mine & ~chosen] = np.maximum(share[mine & ~chosen], -q)  # of jobs that the network leaves out
                labels.append(str(top))
                rest.append(-q)
            more = {"odd": (np.array(rest, object), tuple(labels))} if rest else {}
            return price, share, more, {}
        ceiling = np.array([-(-x.numerator // x.denominator) for x in plan.shares.level], np.int64)
        odd = np.array([x.denominator > 1 for x in plan.shares.level], bool)
        top = int(ceiling.max(initial=0))
        earlier = [0] * (top + 1)
        bound = 1
        for k in range(1, top + 1):
            mine = odd & (ceiling == k)
            if mine.any():
                runs, known = counts >= k, plan.candidates_by_job > 0
                chosen, others = share[mine & runs & known], share[mine & ~runs & known]
                earlier[k] = q = int(chosen.max()) if len(chosen) else int(others.min(initial=0))
                # The network leaves out jobs whose tasks all stay or stop.
                share[mine & runs & ~known] = share[mine & ~runs & ~known] = q
                bound = max(bound, 1 + abs(q))
        much = bound + max((abs(int(s)) for s in share), default=0)
        for k in range(top + 1):
            at_most = (ceiling <= k) & (counts < proof.most)
            for jobs in ([self._short(k)] if k else []) + [at_most]:
                gpus, inside = self._by_cut(jobs)
                price, share = price + much * gpus.astype(object), share + much * inside.astype(object)
                for s in range(1, k + 1):
                    earlier[s] += much
        return price, share, {}, {f"share_{k}": -e for k, e in enumerate(earlier) if e and k <= proof.steps}

    def least(self, name: str, own: dict[str, Fraction], found: tuple[Any, Any, Any, Any]) -> Document:
        """No answer transfers less, then stops fewer tasks, then lets fewer wait."""
        proof = self.proof
        price, share, more, earlier = found
        wait = proof.costs.waiting * proof.ties.factor if proof.policy.fair else 0
        stops = proof.costs.stop.astype(object) * proof.ties.factor
        held = np.where(proof.held, -stops - wait, 0)
        before = dict(earlier)
        for each, weight in own.items():
            if each == name:
                break
            if each in proof.stages:
                before[each] = _number(-weight)
        if name in ("stops", "waiting") and proof.moves_out:
            held = held - np.where(proof.held, int(own["stops"]), 0)
        document = self._document(price, share, held, more)
        return {**document, "own": _number(own[name]), **({"earlier": before} if before else {})}


def _number(value: Fraction) -> int | str:
    return int(value) if value.denominator == 1 else str(value)


class _Hands:
    """Multipliers of ``keep`` and ``order`` that hand reduced costs of running tasks to those with known values."""

    def __init__(
        self, proof: _RoundProof, path: tuple[_Branch, ...], reduced: NDArray[Any], kept: Mask, stopped: Mask
    ) -> None:
        self.proof, self.reduced, self.kept, self.stopped, self.view = proof, reduced, kept, stopped, proof.view
        self.stops: dict[int, int] = {}
        self.order: dict[tuple[int, int], int] = {}
        self.derived: dict[str, int] = {}
        self.branched = frozenset(task for task, stays in path if stays)
        self.low = {*self.branched}
        self.high = {task for task, stays in path if not stays}

    @cached_property
    def classes(self) -> dict[int, list[list[int]]]:
        """By job: its running tasks, the longest-running first, those of equal elapsed time together."""
        found: dict[int, list[list[int]]] = {}
        view, held = self.view, np.flatnonzero(self.proof.held)
        for t in held[np.lexsort((held, -view.task_elapsed[held]))].tolist():
            mine = found.setdefault(int(view.task_job[t]), [])
            if mine and view.task_elapsed[mine[-1][0]] == view.task_elapsed[t]:
                mine[-1].append(t)
            else:
                mine.append([t])
        return found

    def limit(self) -> None:
        """Tasks that stay because their job may stop no more: by ``keep``, or by a derived row."""
        for job, classes in self.classes.items():
            mine = [t for each in classes for t in each]
            stay = [t for t in mine if self.kept[t] and self.reduced[t] > 0 and not self._known(t)]
            if not stay:
                continue
            gone = sum(bool(self.stopped[t]) for t in mine)
            if gone >= self.proof.stoppable[job]:
                y = max(self.reduced[t] for t in stay)
                self.stops[job] = y
                for t in mine:
                    self.reduced[t] -= y
            else:
                self.low.update(self.proof.certain(job))

    def _known(self, task: int) -> bool:
        """Whether the task, or a shorter-running one of its job, is known to stay."""
        view = self.view
        return any(
            t == task or (view.task_job[t] == view.task_job[task] and view.task_elapsed[t] < view.task_elapsed[task])
            for t in self.low
        )

    def _place(self, job: int, known: set[int], *, last: bool) -> tuple[int, int] | None:
        """Class and task of the last (or first) known task of a job."""
        hits = [(i, t) for i, each in enumerate(self.classes[job]) for t in each if t in known]
        return (hits[-1] if last else hits[0]) if hits else None

    def down(self) -> None:
        """Hand what tasks that must stay gain to the shortest-running one that is known to stay."""
        for job, classes in self.classes.items():
            place = self._place(job, self.low, last=True)
            for i in range(place[0] if place else 0):
                to = place[1] if place and i + 1 == place[0] else classes[i + 1][0]
                for t in classes[i]:
                    if self.reduced[t] > 0 and t not in self.low:
                        self._hand(t, to, self.reduced[t])
            for t in self.proof.certain(job):
                if t in self.low and t not in self.branched and self.reduced[t] > 0:
                    self.derived[str(self.proof.derive(t))] = self.reduced[t]

    def up(self) -> None:
        """Hand what tasks that must stop lose to the longest-running one that is known to stop."""
        for job, classes in self.classes.items():
            place = self._place(job, self.high, last=False)
            for i in range(len(classes) - 1, place[0] if place else len(classes), -1):
                to = place[1] if place and i - 1 == place[0] else classes[i - 1][0]
                for t in classes[i]:
                    if self.reduced[t] < 0 and t not in self.high:
                        self._hand(to, t, -self.reduced[t])

    def _hand(self, longer: int, shorter: int, amount: int) -> None:
        self.order[longer, shorter] = self.order.get((longer, shorter), 0) + amount
        self.reduced[longer] -= amount
        self.reduced[shorter] += amount

    def document(self) -> Document:
        """The multipliers by name and label."""
        names, jobs = self.view.task_names, self.view.job_names
        order = {label_text((names[a], names[b])): int(y) for (a, b), y in self.order.items() if y}
        stops = {jobs[j]: int(y) for j, y in self.stops.items() if y}
        rows = {name: {"at": at} for name, at in (("order", order), ("keep", stops)) if at}
        found: Document = {"rows": rows} if rows else {}
        if self.derived:
            found["derived"] = {k: int(y) for k, y in self.derived.items()}
        return found


def _potential_prices(leaf: Leaf, start: int) -> tuple[NDArray[Any], NDArray[Any]] | None:
    """(G,) prices of GPUs (at least 0) and (J,) of jobs from the node potentials; None without potentials.

    ``start``: reward for a task that starts.
    """
    plan, network, potential = leaf.plan, leaf.built.shape, leaf.outcome.duals
    if potential is None or potential.dtype.kind not in "iO":
        return None
    view, nodes = plan.view, network.split_nodes(potential)
    sink = int(nodes["E"][0])
    if "gpu" in nodes:
        price = nodes["gpu"] - sink
    else:
        own = np.full(len(view.gpu_node), -1)
        own[view.task_running_gpu[plan.optional]] = np.arange(len(plan.optional))
        memory = np.unique(view.gpu_memory[plan.free_gpu])
        key = view.gpu_node[plan.free_gpu] * len(memory) + np.searchsorted(memory, view.gpu_memory[plan.free_gpu])
        vertex = np.searchsorted(np.unique(key), key)
        price = nodes["node"][vertex] - sink
        mine = own[plan.free_gpu] >= 0
        price[mine] = nodes["own_gpu"][own[plan.free_gpu][mine]] - sink
    worth = nodes["job"] - sink if plan.shares is not None else np.full(len(view.job_names), nodes["S"][0] - sink)
    used = np.isin(plan.free_gpu, leaf.gpu)
    if used.all() and len(used) and not plan.priced:  # all GPUs are used: a constant may be added to the duals
        lift = max(0, -int(price.min()))
        price, worth = price + lift, worth + lift
    # No other task pays for a GPU that a task keeps.
    every = np.full(len(view.gpu_names), max(0, int(worth.max(initial=0))) + start, price.dtype)
    every[plan.free_gpu] = np.maximum(price, 0)
    return every, worth
