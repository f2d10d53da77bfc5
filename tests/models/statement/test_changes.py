"""Changes of a model: their meaning, refused ones, and proofs of the answers; minimum-cost flow as example."""

import json
from fractions import Fraction

import pytest

from flowlex import model_for
from flowlex.instances import read_instance
from flowlex.instances.files import write_instance
from flowlex.instances.instance_base import InstanceError
from flowlex.instances.model_changes import Changes, read_changes
from flowlex.models.min_cost_flow import MinCostFlow
from flowlex.models.solution import ModelError
from flowlex.validation.certificates import verify


def tiny():
    """Two paths from a to d: over b (cost 3, capacity 4) and over c (cost 5); four units."""
    return MinCostFlow(
        read_instance_of(
            supply=[4, 0, 0, -4], tail=[0, 1, 0, 2], head=[1, 3, 2, 3], lower=[0] * 4, upper=[4] * 4, cost=[1, 2, 2, 3]
        )
    )


def read_instance_of(**columns):
    from flowlex.instances.min_cost_flow import NetworkInstance

    lists = {name: tuple(values) for name, values in columns.items()}
    return NetworkInstance(name="tiny", node_names=("a", "b", "c", "d"), **lists)


def test_labels_select_and_group():
    flow = tiny().variables["flow"]
    assert list(flow.index) == [(0, "a", "b"), (1, "b", "d"), (2, "a", "c"), (3, "c", "d")]
    assert len(flow.sel(tail="a")) == 2
    assert len(flow.sel(tail=["a", "b"], head="b")) == 1
    assert len(flow.sel(arc=slice(1, 2))) == 2


def test_a_rule_a_fixed_choice_a_bound_and_a_cost_by_hand():
    model = tiny()
    flow = model.variables["flow"]
    assert model.solve().objective == 12
    assert model.with_constraint("over_b", flow.sel(head="b").sum() <= 1).solve().objective == 3 + 15
    assert model.with_fixed(flow.sel(tail="c"), 2).solve().objective == 6 + 10
    assert model.with_bounds(flow.sel(head="b"), upper=3).solve().objective == 9 + 5
    assert model.with_cost(3 * flow.sel(head="b").sum()).solve().objective == 20
    assert model.with_cost("0.5" * flow.sel(head="b")).solve().objective == 14
    assert model.with_constraint("half", flow.sum(by="head") <= {"b": 2.5, "c": 9, "d": 9}).solve().objective == 6 + 10
    assert (
        model.with_constraint("half", flow.sum(by="head") <= {"b": 2.5, "c": 9, "d": 9}).relaxed().solve().objective
        == 15
    )


def test_own_variables_and_rows_that_broadcast():
    model = tiny()
    open_ = model.with_variable("open", upper=1, integer=True, way=["b", "c"])
    y, flow = open_.variables["open"], open_.variables["flow"]
    linked = open_.with_constraint("b", flow.sel(head="b").sum() <= 4 * y.sel(way="b").sum())
    linked = linked.with_constraint("c", flow.sel(head="c").sum() <= 4 * y.sel(way="c").sum())
    priced = linked.with_cost(10 * y.sel(way="b").sum() + y.sel(way="c").sum())
    assert priced.solve().objective == 21  # over c: 20 and 1; over b: 12 and 10
    wide = model.with_constraint("each", flow.sum(by=["tail", "head"]) - flow.sel(tail="a", head="b").sum() <= 1)
    assert wide.solve().objective == 12  # the flow over b is subtracted in every row


def test_models_are_immutable() -> None:
    model = tiny()
    flow = model.variables["flow"]
    with pytest.raises(ModelError, match="rows 'node' cannot be dropped: flow would appear from nowhere"):
        model.without("node")
    empty = model.with_constraint("nothing", flow.sel(tail="a", head="d").sum() <= 3, allow_empty=True)
    assert empty.solve().objective == 12
    with pytest.raises(TypeError):
        hash(flow)
    assert not model.changes


def test_infeasible_rules_are_named_and_proven():
    model = tiny()
    flow = model.variables["flow"]
    solution = model.with_constraint("few", flow.sel(tail="a").sum() <= 3).solve()
    assert str(solution.status) == "infeasible" and "few" in solution.infeasibility.constraints
    assert solution.certificate.claim == "infeasible"
    odd = model.with_constraint("odd", 2 * flow.sel(head="b").sum() == 3).solve()
    assert str(odd.status) == "infeasible" and odd.certificate.claim == "infeasible"


def test_changes_are_a_document(tmp_path):
    model = tiny()
    flow = model.variables["flow"]
    changed = model.with_constraint("over_b", flow.sel(head="b").sum() <= 1).with_cost(flow.sel(tail="c") * 0.1)
    file = tmp_path / "rules.json"
    file.write_text(json.dumps(changed.changes.plain()))
    assert read_changes(file) == changed.changes
    assert model.with_changes(file).solve().objective == changed.solve().objective
    brought = model.instance.model_copy(update={"changes": changed.changes})
    path = write_instance(brought, tmp_path / "brought.json") or tmp_path / "brought.json"
    again = read_instance(path)
    assert again.changes == changed.changes and again.fingerprint != model.instance.fingerprint
    solution = model_for(again).solve()
    assert solution.objective == pytest.approx(18.3)
    assert verify(json.loads(json.dumps(solution.to_dict())), again).claim == "optimal"
    with pytest.raises(InstanceError, match=r"rules\.json: changes\[0\]\.relation: must be '<=', '>=' or '=='"):
        file.write_text(file.read_text().replace("<=", "<"))
        read_changes(file)


RULE = {"change": "constraint", "name": "a", "relation": "<=", "terms": [{"variable": "x"}]}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (RULE | {"nme": "b"}, "changes[0].nme: unknown field; did you mean 'name'?"),
        (RULE | {"terms": [{"varible": "x"}]}, "changes[0].terms[0].varible: unknown field; did you mean 'variable'?"),
        (RULE | {"terms": []}, "changes[0].terms: must hold at least 1 item, got 0"),
        (RULE | {"rhs": "many"}, "changes[0].rhs: 'many' is no number: write 12, 1.5 or 3/2"),
        (RULE | {"name": 3}, "changes[0].name: must be a text (got 3)"),
        ({"change": "constraint"}, "changes[0].name: field is missing"),
        ({"name": "a"}, "changes[0]: field 'change' is missing"),
    ],
)
def test_a_wrong_change_is_refused_with_offender_place_and_remedy(change, says):
    with pytest.raises(InstanceError) as refused:
        read_changes({"changes": [change]})
    assert str(refused.value) == says


def test_a_subclass_that_states_another_problem_is_solved_as_it_says():
    class Dear(MinCostFlow):
        def state(self, p):
            from dataclasses import replace

            super().state(p)
            p.objectives = [replace(o, values=o.values * 2) for o in p.objectives]

    solution = Dear(tiny().instance).solve()
    assert solution.objective == 24 and solution.certificate is None and "no verifier knows" in solution.message
    with pytest.raises(TypeError, match="override state"):

        class Lost(MinCostFlow):
            def _formulate(self):
                return super()._formulate()


def test_answers_of_other_solvers_are_read_back():
    import pulp

    model = tiny()
    changed = model.with_constraint("over_b", model.variables["flow"].sel(head="b").sum() <= 1)
    problem = changed.compile()
    problem.solve(pulp.HiGHS(msg=False))
    solution = changed.interpret(problem)
    assert solution.objective == 18 and solution.certificate.claim == "feasible"
    assert changed.interpret({"flow": {"2": 4, "3": 4}}).objective == 20
    with pytest.raises(AssertionError, match="over_b"):
        changed.interpret({"flow": {"0": 4, "1": 4}})
    with pytest.raises(ModelError, match="no value"):
        changed.interpret(changed.compile())


def test_exact_numbers_are_read_as_written():
    assert Changes().also().plain() == {"version": 1, "changes": []}
    model = tiny()
    rule = model.variables["flow"].sum() * 0.1 <= "1/3"
    assert rule.rhs == Fraction(1, 3) and rule.expression.terms[0].coefficient == Fraction(1, 10)
