"""A certificate accepts correct answers and refuses every corruption of one, naming the wrong entry."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowlex.formulations import UNBOUNDED, FlowNetwork, LinearProgram, Outcome, Status, solve
from flowlex.validation.certificates import Certificate, CertificateError, Check, certify_network, certify_program


@pytest.fixture
def network() -> FlowNetwork:
    return FlowNetwork.from_arrays(
        [0, 0, 1, 1, 2],
        [1, 2, 2, 3, 3],
        lower=[0, 0, 1, 0, 0],
        upper=[4, 2, 2, 3, UNBOUNDED],
        cost=[2, 2, 1, 3, 1],
        supply=[4, 0, 0, -4],
        node_labels=["s", "a", "b", "t"],
    )


@pytest.fixture
def solved(network: FlowNetwork) -> Outcome:
    return solve(network, "network")


def bumped(values: np.ndarray, index: int, by: float = 1) -> np.ndarray:
    changed = values.copy()
    changed[index] += by
    return changed


def failures(certificate: Certificate) -> dict[str, str]:
    assert not certificate.ok
    return {check.name: check.detail for check in certificate.checks if not check.ok}


def test_a_true_network_optimum_is_proven(network: FlowNetwork, solved: Outcome) -> None:
    certificate = certify_network(network, solved)
    assert certificate.ok
    assert certificate.claim == "optimal"
    assert certificate.exact
    assert certificate.tolerance == 0
    assert certificate.require("x") is certificate
    assert str(certificate).startswith("optimal, proven exactly: ")


def test_a_flow_outside_its_bounds_names_the_arc(network: FlowNetwork, solved: Outcome) -> None:
    for change in ([1, -1, 1, 0, 0], [0, 0, -2, 2, -2]):  # conserve flow, but leave the bounds of the arc from a to b
        around = solved.values + np.array(change)
        failed = failures(certify_network(network, replace(solved, values=around)))
        assert "flow[2] is off by 1" in failed["every variable is within its bounds"]


def test_a_feasible_flow_that_is_not_optimal_is_refuted(network: FlowNetwork, solved: Outcome) -> None:
    worse = np.array([4, 0, 1, 3, 1])
    cost = network.total_cost(worse)
    assert cost > solved.objective
    failed = failures(certify_network(network, replace(solved, values=worse, objective=cost, bound=cost)))
    assert failed["the potentials prove the cost"] == f"proven: at least {solved.objective}"
    feasible = replace(solved, values=worse, objective=cost, status=Status.FEASIBLE)
    assert certify_network(network, feasible).claim == "feasible"


@pytest.mark.parametrize(
    ("change", "name", "detail"),
    [
        ({"objective": 15}, "cost recomputed from the flow", "14 (stated 15)"),
        ({"objective": float("nan")}, "cost recomputed from the flow", "14 (stated nan)"),
        ({"objective": float("inf")}, "cost recomputed from the flow", "14 (stated inf)"),
        ({"objective": 14.5}, "cost recomputed from the flow", "14 (stated 14.5)"),
        ({"bound": 13}, "the stated bound is the cost", "14 (stated 13)"),
        ({"values": np.zeros(4, np.int64)}, "one integer flow per arc", "expected 5, got shape (4,)"),
        ({"values": np.array([2.0, 2, 2, 0, 4])}, "one integer flow per arc", "got float64"),
        ({"duals": np.zeros(3, np.int64)}, "one integer potential per node", "expected 4, got shape (3,)"),
        ({"reduced_costs": np.zeros(2, np.int64)}, "reduced costs recomputed from the potentials", ""),
        ({"reduced_costs": np.zeros(5, np.int64)}, "reduced costs recomputed from the potentials", ""),
        ({"values": None}, "has an answer", "status optimal"),
    ],
)
def test_each_stated_figure_is_checked(
    network: FlowNetwork, solved: Outcome, change: dict[str, Any], name: str, detail: str
) -> None:
    assert failures(certify_network(network, replace(solved, **change)))[name] == detail


def test_sums_that_leave_64_bits_are_not_fooled() -> None:
    """Four flows of 2**62 sum to 2**64, which overflows to 0."""
    network = FlowNetwork.from_arrays([0] * 4, [1] * 4, upper=UNBOUNDED, cost=0, supply=[0, 0])
    flow = np.full(4, 2**62)
    assert "every row holds" in failures(certify_network(network, Outcome(Status.FEASIBLE, "x", 0, None, flow)))
    wild = np.array([2**63 - 1, -(2**63) + 1])
    outcome = Outcome(Status.OPTIMAL, "x", 0, 0, np.zeros(4, np.int64), wild)
    assert "the potentials prove the cost" in failures(certify_network(network, outcome))
    below = Outcome(Status.FEASIBLE, "x", 0, None, np.array([-(2**63), 0, 0, 0]))
    assert "every variable is within its bounds" in failures(certify_network(network, below))


def test_a_cut_proves_infeasibility_and_nothing_else_does(network: FlowNetwork) -> None:
    tight = FlowNetwork.from_arrays([0, 1], [1, 2], upper=[5, 3], cost=1, supply=[5, 0, -5])
    outcome = solve(tight, "network")
    certificate = certify_network(tight, outcome)
    assert certificate.ok
    assert (certificate.claim, certificate.exact) == ("infeasible", True)

    def by_cut(of: FlowNetwork, *nodes: str) -> Certificate:
        return certify_network(of, replace(outcome, infeasibility=replace(outcome.infeasibility, nodes=nodes)))

    for nodes in ((), ("node[1]",), tuple(tight.node_names)):
        assert not by_cut(tight, *nodes).ok
    assert failures(by_cut(tight, *outcome.infeasibility.nodes, "nobody")) == {"nodes of the cut": "nobody"}
    assert not certify_network(network, replace(outcome, infeasibility=None)).ok
    for node in network.node_names:  # a feasible network has no overloaded cut
        assert not by_cut(network, node).ok


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6))
def test_random_corruptions_of_a_network_answer_fail(seed: int) -> None:
    rng = np.random.default_rng(seed)
    nodes, arcs = 5, 12
    tail, head = rng.integers(0, nodes, arcs), rng.integers(0, nodes, arcs)
    flow = rng.integers(0, 3, arcs)
    supply = np.bincount(tail, flow, nodes).astype(int) - np.bincount(head, flow, nodes).astype(int)
    network = FlowNetwork.from_arrays(tail, head, upper=4, cost=rng.integers(-3, 9, arcs), supply=supply)
    outcome = solve(network, "network")
    assert certify_network(network, outcome).ok
    arc = int(rng.integers(arcs))
    if tail[arc] != head[arc] or network.cost[arc]:
        assert not certify_network(network, replace(outcome, values=bumped(outcome.values, arc))).ok
    assert not certify_network(network, replace(outcome, objective=outcome.objective + 1)).ok
    assert not certify_network(network, replace(outcome, bound=outcome.bound - 1)).ok
    assert not certify_network(network, replace(outcome, reduced_costs=bumped(outcome.reduced_costs, arc))).ok


# Linear and integer programs


def transport(*, maximise: bool = False, integer: bool = False) -> LinearProgram:
    lp = LinearProgram("transport")
    x = lp.variables("ship", 4, upper=6, integer=integer, labels=["11", "12", "21", "22"])
    lp.constrain("supply", x.sum_by([0, 0, 1, 1]), "<=", [3, 4])
    lp.constrain("demand", x.sum_by([0, 1, 0, 1]), ">=", [5, 2] if not maximise else [1, 1])
    lp.constrain("tie", x[[0]] - x[[3]], "==", 1)
    cost = np.array([1, 4, 2, 1])
    (lp.maximize if maximise else lp.minimize)((x * cost).sum() + 10)
    return lp


@pytest.mark.parametrize("maximise", [False, True])
def test_a_true_optimum_of_a_program_is_proven(maximise: bool) -> None:
    lp = transport(maximise=maximise)
    certificate = certify_program(lp, solve(lp, "highs"))
    assert certificate.ok, str(certificate)
    assert certificate.claim == "optimal"
    assert not certificate.exact
    assert certificate.tolerance == 1e-6
    assert "proven to a tolerance of 1e-06: " in str(certificate)


@pytest.mark.parametrize("maximise", [False, True])
def test_changed_values_of_a_program_fail(maximise: bool) -> None:
    lp = transport(maximise=maximise)
    outcome = solve(lp, "highs")
    for column in range(4):
        for by in (1.0, -1.0, 0.001):
            failed = failures(certify_program(lp, replace(outcome, values=bumped(outcome.values, column, by))))
            assert "objective recomputed from the values" in failed
    failed = failures(certify_program(lp, replace(outcome, values=bumped(outcome.values, 0, 1.0))))
    assert failed["every constraint holds"].split(" ")[0] in {"supply[0]", "tie[0]"}
    failed = failures(certify_program(lp, replace(outcome, values=bumped(outcome.values, 1, 10.0))))
    assert failed["every variable is within its bounds"].startswith("ship[12] is off by")
    for wrong in (np.nan, np.inf):
        values = outcome.values.copy()
        values[2] = wrong
        with np.errstate(invalid="ignore"):
            assert not certify_program(lp, replace(outcome, values=values)).ok


@pytest.mark.parametrize("maximise", [False, True])
def test_flipped_and_changed_duals_fail(maximise: bool) -> None:
    lp = transport(maximise=maximise)
    outcome = solve(lp, "highs")
    used = [row for row in range(lp.row_count) if abs(outcome.duals[row]) > 1e-6]
    assert used
    for row in used:
        duals = outcome.duals.copy()
        duals[row] *= -1
        assert not certify_program(lp, replace(outcome, duals=duals, reduced_costs=None)).ok
    for row, name in ((0, "supply[0]"), (2, "demand[0]")):  # duals of the wrong sign, for any bounds
        wrong = (-5.0 if row == 0 else 5.0) if maximise else (5.0 if row == 0 else -5.0)
        duals = outcome.duals.copy()
        duals[row] = wrong
        failed = failures(certify_program(lp, replace(outcome, duals=duals, reduced_costs=None)))
        assert failed["every dual has the sign of its constraint"].startswith(f"{name} is off by")
    assert not certify_program(lp, replace(outcome, duals=outcome.duals * np.nan)).ok


def test_a_price_against_a_missing_bound_is_refuted() -> None:
    lp = LinearProgram("p")
    x = lp.variables("x", 1, labels=["only"])
    lp.constrain("cap", x, "<=", 3)
    lp.maximize(x.sum())
    outcome = solve(lp, "highs")
    assert certify_program(lp, outcome).ok
    failed = failures(certify_program(lp, replace(outcome, duals=np.array([0.5]), reduced_costs=None)))
    assert failed["every reduced cost has the sign of its bound"].startswith("x[only] is off by")
    assert "dual objective equals the objective" in failed


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"objective": 20.0}, "objective recomputed from the values"),
        ({"objective": float("nan")}, "objective recomputed from the values"),
        ({"bound": 18.0}, "the stated bound is the objective"),
        ({"reduced_costs": np.array([9.0, 0, 0, 0])}, "reduced costs recomputed from the duals"),
        ({"values": np.zeros(3)}, "one number per row and column"),
        ({"duals": np.zeros(4)}, "one number per row and column"),
        ({"reduced_costs": np.zeros(5)}, "one number per row and column"),
        ({"values": None}, "has an answer"),
    ],
)
def test_each_stated_figure_of_a_program_is_checked(change: dict[str, Any], name: str) -> None:
    lp = transport()
    assert name in failures(certify_program(lp, replace(solve(lp, "highs"), **change)))


def test_a_feasible_point_is_not_called_optimal() -> None:
    lp = transport()
    outcome = solve(lp, "highs")
    for less in ({"status": Status.FEASIBLE}, {"duals": None}):
        certificate = certify_program(lp, replace(outcome, **less))
        assert certificate.ok
        assert certificate.claim == "feasible"


def test_integer_programs() -> None:
    lp = transport(integer=True)
    outcome = solve(lp, "highs")
    assert certify_program(lp, outcome).verdict == "quoted"  # HiGHS says that nothing is better
    assert certify_program(lp, outcome).claim == "feasible"
    assert certify_program(lp, replace(outcome, bound=None)).claim == "feasible"
    shifted = outcome.values + 0.5
    assert "integer variables are integers" in failures(certify_program(lp, replace(outcome, values=shifted)))
    failed = failures(certify_program(lp, replace(outcome, bound=outcome.objective + 1)))
    assert "the answer does not beat the bound" in failed
    loose = replace(outcome, bound=outcome.objective - 1)
    assert "an optimum meets the bound" in failures(certify_program(lp, loose))
    assert certify_program(lp, replace(loose, status=Status.FEASIBLE)).ok


# The certificate itself


def test_a_certificate_without_checks_proves_nothing() -> None:
    with pytest.raises(CertificateError, match=r"m: i: the certificate fails \(nothing was checked\); please report"):
        Certificate("optimal", True, ()).require("m: i")


def test_a_failed_certificate_names_what_failed() -> None:
    good, bad = Check("good", True), Check("bad", False, np.int64(3), "arc 7 is off by 3")
    certificate = Certificate("optimal", True, (good,)).including([bad])
    with pytest.raises(CertificateError, match=r"model: the certificate fails \(bad: arc 7 is off by 3\)"):
        certificate.require("model")
    assert "FAIL bad: arc 7 is off by 3" in str(certificate)
    assert "✗" in certificate._repr_html_()
    assert json.loads(json.dumps(certificate.to_dict()))["checks"][1]["worst"] == 3
    assert certificate.to_dict()["ok"] is False
