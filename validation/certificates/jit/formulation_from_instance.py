"""Just-in-time bandwidth stated from the instance, for answers of changed models."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Any

from flowlex.instances.exact_rationals import rational
from flowlex.instances.jit import JitInstance
from flowlex.validation.certificates.jit.transfer_windows import TransferWindows, planned_transfers, transfer_windows
from flowlex.validation.certificates.statement.rational_linear_program import ExactStatement, Number


def state_jit(instance: JitInstance, options: Mapping[str, Any]) -> ExactStatement:
    """Units by transfer and slot, loads and their levels."""
    return JitStatement(instance, options).state()


class JitStatement:
    """The data of the rows. Loads and ports are keyed by name; slots count from that of the first arrival."""

    def __init__(
        self, instance: JitInstance, options: Mapping[str, Any], windows: TransferWindows | None = None
    ) -> None:
        self.instance, self.load, self.program = instance, str(options["load"]), str(options["program"])
        kind = options["windows"] or ("elastic" if self.program == "P2" else "strict")
        self.elastic, self.whole = kind == "elastic", options["integrality"] != "lp"
        self.windows = w = windows or transfer_windows(instance, str(options["lat"]))
        self.every = every = sorted(planned_transfers(instance, float(options["share"]), str(options["share_of"])))
        self.planned = every
        self.jobs = [job.name for job in instance.jobs for _ in job.transfers]
        arrays = self.windows.columns
        self.names = arrays.names
        machines = [m.name for m in instance.machines]
        self.ends: list[tuple[str, str]] = [
            (machines[a], machines[b]) for a, b in zip(arrays.sender.tolist(), arrays.receiver.tolist(), strict=True)
        ]
        self.capacity: tuple[dict[str, int], dict[str, int]] = (
            dict(zip(machines, arrays.out_units.tolist(), strict=True)),
            dict(zip(machines, arrays.in_units.tolist(), strict=True)),
        )
        self.units: list[int] = w.units.tolist()
        self.most: list[int] = w.most.tolist()
        self.start, self.due, self.stop = w.start.tolist(), w.due.tolist(), w.stop.tolist()
        if self.elastic and every:
            last = max(max(self.start[f], self.stop[f]) for f in every) + sum(map(self._busiest, (0, 1)))
            last += int(options["extra_slots"])
            self.stop = [min(last, firm) for firm in w.firm.tolist()]

    def _busiest(self, side: int) -> int:
        """Number of slots that the busiest port needs for all its units."""
        total: dict[str, int] = defaultdict(int)
        for f in self.every:
            total[self.ends[f][side]] += self.units[f]
        return max(-(-units // self.capacity[side][machine]) for machine, units in total.items())

    def loads_of(self, f: int) -> list[str]:
        """The loads that a transfer counts towards."""
        sender, receiver = self.ends[f]
        each = {"out": f"{sender} out", "in": f"{receiver} in"}
        return {
            "pair": [f"{sender}>{receiver}"],
            "sender": [each["out"]],
            "receiver": [each["in"]],
            "port": [each["out"], each["in"]],
        }[self.load]

    def rate_labels(self, f: int) -> dict[str, Any]:
        """Labels of a transfer."""
        sender, receiver = self.ends[f]
        names = {"transfer": self.names[f], "job": self.jobs[f], "link": f"{sender}>{receiver}"}
        return names | {"sender": sender, "receiver": receiver}

    def load_labels(self, f: int, load: str) -> dict[str, Any]:
        """Labels of a load that a transfer counts towards."""
        sender, receiver = self.ends[f]
        if self.load == "pair":
            return {"link": load, "sender": sender, "receiver": receiver}
        out = load == self.loads_of(f)[0] and self.load != "receiver"
        return {"port": load, "machine": sender if out else receiver, "side": "out" if out else "in"}

    def _most_of(self, f: int, load: str) -> int:
        """Capacity of a load in a slot."""
        if self.load == "pair":
            return self.most[f]
        labels = self.load_labels(f, load)
        return self.capacity[labels["side"] == "in"][labels["machine"]]

    def state(self, only: Collection[int] | None = None) -> ExactStatement:
        """The statement; ``only``: that of some transfers, with the ports to themselves."""
        self.planned = [f for f in self.every if only is None or f in only]
        s = ExactStatement("largest", needed=frozenset({"size", "level_link", "level_order", "largest_link"}))
        sent, late = self._rates(s)
        for f in self.planned:
            s.row("size", self.names[f], dict.fromkeys(sent[f], 1), "==", self.units[f])
        if self.elastic:
            s.stage("lateness", late)
        self._count(s, sent)
        return s

    def _rates(self, s: ExactStatement) -> tuple[dict[int, range], dict[int, Number]]:
        """Add rates and port rows; return the columns of every transfer, and the lateness of each column."""
        labels: list[dict[str, Any]] = []
        upper: list[int] = []
        ports = [defaultdict[tuple[str, int], dict[int, Number]](dict) for _ in (0, 1)]
        sent: dict[int, range] = {}
        late: dict[int, Number] = {}
        for f in self.planned:
            fixed, (sender, receiver) = self.rate_labels(f), self.ends[f]
            sent[f] = range(len(labels), len(labels) + self.stop[f] - self.start[f])
            for column, t in zip(sent[f], range(self.start[f], self.stop[f]), strict=True):
                labels.append({**fixed, "slot": t, "time": self._seconds(t)})
                upper.append(min(self.most[f], self.units[f]))
                late[column] = max(t + 1 - self.due[f], 0)
                ports[0][sender, t][column] = ports[1][receiver, t][column] = 1
        s.variables("rate", labels, keys=("transfer", "slot"), upper=upper, integer=self.whole)
        for name, rows, capacity in zip(("egress", "ingress"), ports, self.capacity, strict=True):
            for (machine, t), terms in rows.items():
                s.row(name, f"{machine},{t}", terms, "<=", capacity[machine])
        return sent, late

    def _seconds(self, slot: int) -> float:
        return float(rational(self.instance.slot_s) * (slot + self.windows.origin))

    def _count(self, s: ExactStatement, sent: Mapping[int, range]) -> None:
        """Add the largest load; with P2 also the number of loads that reach every level."""
        loads: dict[tuple[str, int], dict[int, Number]] = defaultdict(dict)
        owner = {load: f for f in self.every for load in self.loads_of(f)}
        total: dict[str, int] = defaultdict(int)
        for f in self.every:
            for load in self.loads_of(f):
                total[load] += self.units[f]
        for f, columns in sent.items():
            for load in self.loads_of(f):
                for column, t in zip(columns, range(self.start[f], self.stop[f]), strict=True):
                    loads[load, t][column] = 1
        top = max((min(self._most_of(f, load), total[load]) for load, f in owner.items()), default=0)
        largest = s.variables("largest", [{}], upper=top, integer=self.whole).start
        for (load, t), terms in loads.items():
            s.row("largest_link", f"{load},{t}", {**terms, largest: -1}, "<=", 0)
        s.stage("largest", {largest: 1})
        if self.program == "P2":
            self._steps(s, loads, owner, top)

    def _steps(
        self, s: ExactStatement, loads: Mapping[tuple[str, int], dict[int, Number]], owner: Mapping[str, int], top: int
    ) -> None:
        """Add a variable for every level that a load may reach, and a stage for every level."""
        labels: list[dict[str, Any]] = []
        upper, first = s.blocks["rate"].upper, s.columns
        levels: dict[int, dict[int, Number]] = {k: {} for k in range(top, 0, -1)}
        for (load, t), terms in loads.items():
            own = {**self.load_labels(owner[load], load), "slot": t, "time": self._seconds(t)}
            reach = min(self._most_of(owner[load], load), int(sum(upper[column] for column in terms)))
            steps = range(first + len(labels), first + len(labels) + reach)
            s.row("level_link", f"{load},{t}", {**terms, **dict.fromkeys(steps, -1)}, "==", 0)
            for k, column in enumerate(steps, 1):
                labels.append({**own, "step": k})
                levels[k][column] = 1
                if k < reach:
                    s.row("level_order", f"{load},{t},{k}", {column + 1: 1, column: -1}, "<=", 0)
        key = "link" if self.load == "pair" else "port"
        s.variables("level", labels, keys=(key, "slot", "step"), upper=1, integer=self.whole)
        for k, terms in levels.items():
            s.stage(f"level_{k}", terms)
