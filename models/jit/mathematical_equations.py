"""The equations of just-in-time bandwidth, with the names of their rows."""

from __future__ import annotations

from flowlex.models.model_equations import Equation

EQUATIONS: tuple[Equation, ...] = (
    Equation(
        "egress",
        r"\sum_{f \text{ out of } i} x_f^t \le C \quad \forall i \in M, t \in T",
        "a port sends at most its capacity",
        "minus an upper bound on what one more unit of capacity saves, in the first goal that it affects",
        "loads (of lateness: units x slots) per unit",
        "Shi et al. 2021, (4)",
    ),
    Equation(
        "ingress",
        r"\sum_{f \text{ into } j} x_f^t \le C \quad \forall j \in M, t \in T",
        "a port receives at most its capacity",
        "as for egress",
        "loads (of lateness: units x slots) per unit",
        "Shi et al. 2021, (5)",
    ),
    Equation(
        "size",
        r"\sum_{t=s_f}^{l_f - 1} x_f^t = d_f \quad \forall f \in F",
        "all of a transfer arrives within its window",
        "upper bound on what one unit less of the transfer saves, in the first goal above level 1 that it affects",
        "loads (of lateness: units x slots) per unit",
        "Shi et al. 2021, (6)",
    ),
    Equation(
        "stages_before",
        r"g_r(x) \le G_r \quad \text{for the stages } r \text{ before}",
        "lateness, the largest load and higher levels stay at their optima",
        when="P2 with a stage, or where some transfer must be late",
        exists=lambda m: m.has_rows("stages_before"),
    ),
    Equation(
        "largest_link",
        r"\delta_u \le z \quad \forall u \in U",
        "no load is above the largest",
        source="Shi et al. 2021, P1",
        when="P1 and P2",
        exists=lambda m: m.has_rows("largest_link"),
    ),
    Equation(
        "level_link",
        r"\delta_u = \sum_{s=1}^{C} y_u^s, \quad 0 \le y_u^s \le 1 \quad \forall u \in U",
        "a load is cut into levels",
        source="P3 in increments; ours",
        when="P2 with a stage, P3, and changed models",
        exists=lambda m: m.has_rows("level_link"),
    ),
    Equation(
        "level_order",
        r"y_u^{s+1} \le y_u^s \quad \forall u \in U, s",
        "a load that reaches a level reaches those below it",
        when="P2 with a stage, and changed models",
        exists=lambda m: m.has_rows("level_order"),
    ),
    Equation(
        "lambda_link",
        r"\sum_{s=0}^{C} s \lambda_u^s = \delta_u \quad \forall u \in U",
        "a load as a mixture of integer loads",
        source="Shi et al. 2021, P4",
        when="P4",
        exists=lambda m: m.program == "P4",
    ),
    Equation(
        "lambda_one",
        r"\sum_{s=0}^{C} \lambda_u^s = 1 \quad \forall u \in U",
        "the weights of a mixture sum to one",
        source="Shi et al. 2021, P4",
        when="P4",
        exists=lambda m: m.program == "P4",
    ),
)
