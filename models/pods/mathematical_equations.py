r"""The equations of both phases of pod placement, each stated once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypedDict

from flowlex.instances.pod_rule_arrays import GANG, MOST, QUOTA, SKEW, SideRules
from flowlex.models.model_base import Equation


class _When(TypedDict):
    """The condition under which rows exist, as text and as a predicate of the model."""

    when: str
    exists: Callable[[Any], bool]


def _balance(name: str) -> _When:
    return {"when": f"balance={name}", "exists": lambda m: m.stage == "balance" and m.balance == name}


def _rule(kind: int, says: str) -> _When:
    return {"when": says, "exists": lambda m: m.instance.arrays.rules.has(kind)}


def _quotas(rules: SideRules, *, everywhere: bool) -> bool:
    """Return whether there are quotas (``everywhere``), or resources of domains."""
    return bool(((rules.what == QUOTA) & ((rules.topology == 0) == everywhere)).any())


_ON_CARDS: _When = {"when": "cards=True and GPU pods fit", "exists": lambda m: len(m.builder.card_slots[0]) > 0}
_FAIR: _When = {
    "when": "admission=fair and stage=admission",
    "exists": lambda m: m.admission == "fair" and m.stage == "admission" and bool(m.levels.weight),
}
_WHILE_SOLVING: _When = {"when": "only while solving", "exists": lambda m: False}

EQUATIONS: tuple[Equation, ...] = (
    Equation(
        "pod",
        r"\sum_{i \in N} x_{pi} \le 1 \quad \forall p",
        "a pod runs at most once",
        exists=lambda m: not m.instance.arrays.stays.all(),
    ),
    Equation(
        "running",
        r"\sum_{i \in N} x_{pi} = 1 \quad \forall p \text{ running}",
        "what runs goes on, unless it may be stopped",
        when="when pods run already",
        exists=lambda m: m.instance.arrays.stays.any(),
    ),
    Equation("cpu", r"\sum_p a_{p,\mathrm{cpu}} x_{pi} / b_{i,\mathrm{cpu}} \le 1 \quad \forall i", "cores of a node"),
    Equation(
        "memory", r"\sum_p a_{p,\mathrm{mem}} x_{pi} / b_{i,\mathrm{mem}} \le 1 \quad \forall i", "memory of a node"
    ),
    Equation("card", r"\sum_p g_{pi} y_{pc} / s_c \le 1 \quad \forall c \in C_i", "memory of a card", **_ON_CARDS),
    Equation(
        "card_link", r"\sum_{c \in C_i} y_{pc} = m_p x_{pi} \quad \forall p, i", "a GPU pod gets its cards", **_ON_CARDS
    ),
    Equation(
        "card_distinct",
        r"y_{pc} \le x_{pi} \quad \forall p: m_p > 1, c \in C_i",
        "each of them once",
        when="cards=True and some pods want several cards",
        exists=lambda m: m.builder.several.any(),
    ),
    Equation(
        "gpu",
        r"\sum_p g_{pi} m_p x_{pi} / b_{i,\mathrm{gpu}} \le 1 \quad \forall i",
        "GPU memory of a node",
        when="cards=False",
        exists=lambda m: not m.cards,
    ),
    Equation(
        "compute",
        r"\sum_p e_p y_{pc} \le 1 \quad \forall c \in C_i",
        "compute of a card (of all cards of a node with cards=False)",
        when="when pods ask for compute",
        exists=lambda m: m.instance.arrays.exact.compute.any() and (not m.cards or len(m.builder.card_slots[0]) > 0),
    ),
    Equation(
        "move_budget",
        r"\sum_{\text{moved}} \mathrm{cost}_p x_{pi} \le \mathrm{budget}",
        "moves are limited",
        when="when running pods may move",
        exists=lambda m: m.builder.moved.any(),
    ),
    Equation(
        "gang",
        r"\sum_d z_{gd} \le 1 \quad \forall g",
        "a gang is in one domain (the cluster, or one node or rack) or in none",
        **_rule(GANG, "when there are gangs"),
    ),
    Equation(
        "gang_whole",
        r"\sum_{p \in k} \sum_{i \in d} x_{pi} = |k| z_{gd} \quad \forall g, d, k \subseteq g",
        "all equal pods k of a gang are placed there, or none",
        **_rule(GANG, "when there are gangs"),
    ),
    Equation(
        "spread",
        r"\sum_{p \in S} \sum_{i \in d} x_{pi} \le \max(m_S, r_d) \quad \forall S, d",
        "pods of a domain, unless more run there already",
        **_rule(MOST, "when spreads give most"),
    ),
    Equation(
        "skew",
        r"\sum_{p \in S} \sum_{i \in d} x_{pi} - e_S \le \max(s_S, r_d - \min_{d'} r_{d'}) \quad \forall S, d",
        "a domain is at most so far above the emptiest",
        **_rule(SKEW, "when spreads give a skew"),
    ),
    Equation(
        "emptiest",
        r"\sum_{p \in S} \sum_{i \in d} x_{pi} \ge e_S \quad \forall S, d",
        "the emptiest domain",
        **_rule(SKEW, "when spreads give a skew"),
    ),
    Equation(
        "quota",
        r"\sum_{p \in Q} a_{pr} \sum_i x_{pi} \le \max(q_{Qr}, r_{Qr}) \quad \forall Q, r",
        "what the pods of a queue use, unless more runs already",
        when="when queues have quotas",
        exists=lambda m: _quotas(m.instance.arrays.rules, everywhere=True),
    ),
    Equation(
        "resource",
        r"\sum_{p} a_{pr} \sum_{i \in d} x_{pi} \le \max(b_{rd}, r_{rd}) \quad \forall r, d",
        "a resource beside cores, memory and cards, by node or domain, unless more is in use already",
        when="when there are such resources",
        exists=lambda m: _quotas(m.instance.arrays.rules, everywhere=False),
    ),
    Equation(
        "count",
        r"\sum_{p \in k} x_{pi} = n_{ki} \quad \forall k, i",
        "how many of several equal pods k are on a node, in changed models",
        **_WHILE_SOLVING,
    ),
    Equation(
        "share",
        r"s_q = \frac{1}{w_q} \Big(r_q + \sum_{p \in q} v_p \sum_i x_{pi}\Big) \quad \forall q",
        "share of a queue: the worth of its pods, those that run (r) too, over its weight",
        **_FAIR,
    ),
    Equation(
        "fair",
        r"t_k - d_{kq} \le s_q \quad \forall k, q",
        "the k least shares together are k t_k less the sum of d_k",
        **_FAIR,
    ),
    Equation(
        "fair_kept",
        r"j t_j - \sum_q d_{jq} \ge S_j \quad \forall j < k",
        "lesser sums stay as large as they are",
        **_WHILE_SOLVING,
    ),
    Equation(
        "admitted",
        r"\sum_{p \in P_k} v_p \sum_i x_{pi} = A_k \quad \forall k",
        "phase 1 is kept",
        when="stage=balance",
        exists=lambda m: m.stage == "balance" and bool(m.levels.keys),
    ),
    Equation("distance", r"d_i = u_i - c \quad \forall i", "from the centre", **_balance("deviation")),
    Equation(
        "tangent", r"t_i \ge 2 a d_i - a^2 \quad \forall i, a", "outer tangents of the square", **_balance("deviation")
    ),
    Equation("largest", r"u_i \le U \quad \forall i", "the largest load", **_balance("max_load")),
    Equation("mean", r"\sum_i u_i = |N| c", "the mean load", **_balance("mean_absolute")),
    Equation("above", r"u_i - c \le d_i \quad \forall i", "loads above the mean", **_balance("mean_absolute")),
    Equation("below", r"c - u_i \le d_i \quad \forall i", "loads below the mean", **_balance("mean_absolute")),
    Equation(
        "at_most", r"\text{objective} \le \text{that of the answer at hand}", "cuts off what is worse", **_WHILE_SOLVING
    ),
)
