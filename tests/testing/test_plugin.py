"""The pytest plugin: options, runs, reports and refusals; it costs nothing if it is not used."""

import subprocess
import sys
from types import SimpleNamespace

import hypothesis
import pytest

from flowlex.testing import mutate, plugin

#: Imported before the inner pytest runs, as each of them unloads the modules that it imports itself.
LOADED = (mutate, hypothesis)
MODEL = """
    import pulp
    from flowlex.testing import formulation

    @formulation
    def knapsack(room=4):
        problem = pulp.LpProblem("knapsack", pulp.LpMaximize)
        x = [problem.add_variable(f"x_{item}", 0, 1, "Integer") for item in "AB"]
        problem += 2 * x[0] + 4 * x[1]
        problem += 2 * x[0] + 3 * x[1] <= room, "room"
        return problem
"""
WEAK = """
    from flowlex.testing import assert_optimum
    from model import knapsack

    def test_optimum():
        assert_optimum(knapsack(), 4)
"""
STRONG = """
    import pytest
    from hypothesis import given, strategies
    from flowlex.testing import assert_feasible, assert_optimum, assert_violates
    from model import knapsack

    @pytest.fixture(scope="module")
    def problem():
        return knapsack()

    def test_optimum(problem):
        assert_optimum(problem, 4)

    def test_feasible(problem):
        assert_feasible(problem, {"x_A": 1})

    class TestRefused:
        @pytest.mark.parametrize("name, value", [("x_A", 0.5), ("x_A", -1), ("x_A", 2), ("x_B", 2)])
        def test_bounds(self, problem, name, value):
            assert_violates(problem, {name: value}, "x")

    @given(strategies.integers(0, 5))
    def test_rooms(room):
        assert_optimum(knapsack(room), [0, 0, 2, 4, 4, 6][room])

    def test_tight():
        assert_feasible(knapsack(2), {"x_A": 1})

    def test_with_pytest():
        with pytest.raises(AssertionError):
            assert_feasible(knapsack(), {"x_A": 1, "x_B": 1})
"""


@pytest.fixture
def run(pytester, monkeypatch):
    """Run pytest on a model and its tests in this process, with the plugin as loaded by its entry point."""

    def run(tests: str, *arguments: str, model: str = MODEL):
        for name in ("model", "test_model"):
            sys.modules.pop(name, None)
        pytester.makepyfile(model=model, test_model=tests)
        pytester.syspathinsert()
        plain = ("-p", "flowlex.testing.plugin", "-p", "no:cacheprovider", "-p", "no:xdist")
        return pytester.runpytest_inprocess(*plain, *arguments)

    return run


def test_without_the_option_tests_run_as_ever(run):
    result = run(WEAK)
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("*mutants of formulations*")


def test_survivors_are_listed_and_fail_the_run(run):
    result = run(WEAK, "--mutate-formulations")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        [
            "*mutants of formulations*",
            "knapsack: 12 mutants, 3 survive, 7 killed, 0 expected, 2 equivalent",
            "  room: side - 1: equivalent",
            "  x: lost lower bound: answers; the mutant allows x_A = -1, x_B = 1: x_A = -1, expected between 0 and 1",
        ]
    )
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_fixtures_are_built_anew_for_each_mutant_and_hypothesis_stops_at_the_first_failure(run):
    result = run(STRONG, "--mutate-formulations")
    result.stdout.fnmatch_lines(["knapsack: 12 mutants, 0 survive, 12 killed, 0 expected, 0 equivalent"])
    assert result.ret == pytest.ExitCode.OK


def test_single_rows_only_on_request(run):
    result = run(WEAK, "--mutate-formulations", "--mutate-single")
    result.stdout.fnmatch_lines(["  x_A: lost lower bound: answers; *"])


def test_pytest_fail_kills(run):
    fails = """
    import pytest
    from flowlex.testing import assert_optimum
    from model import knapsack

    def test_optimum():
        with pytest.raises(AssertionError):
            assert_optimum(knapsack(), 5)

    def test_fails():
        problem = knapsack()
        if len(problem.constraints()[0].items()) == 0:
            pytest.fail("the room has no terms")
    """
    result = run(fails, "--mutate-formulations")
    result.stdout.no_fnmatch_line("  room: drop: *")


def test_a_test_that_fails_without_mutants_judges_none(run):
    result = run(WEAK.replace(", 4)", ", 5)"), "--mutate-formulations")
    result.assert_outcomes(failed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["knapsack: 12 mutants, *, 0 killed, *"])


def test_nothing_to_mutate_is_said_and_fails(run):
    result = run("def test_nothing(): pass", "--mutate-formulations")
    result.stdout.fnmatch_lines(["no passing test calls a function marked with flowlex.testing.formulation"])
    assert result.ret == pytest.ExitCode.TESTS_FAILED


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"mutate_single": True}, "--mutate-single needs --mutate-formulations"),
        ({"mutate_formulations": True, "numprocesses": 2}, "runs in one process; leave out -n"),
    ],
)
def test_options_that_contradict_each_other(options, said):
    config = SimpleNamespace(getoption=lambda name, default=None: options.get(name, default))
    with pytest.raises(pytest.UsageError, match=said):
        plugin.pytest_configure(config)


def test_importing_the_plugin_or_the_kit_imports_nothing_heavy():
    code = "import sys, flowlex.testing.plugin, flowlex.testing; print(*sys.modules)"
    modules = set(
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    )
    heavy = {"highspy", "hypothesis", "matplotlib", "numba", "numpy", "pandas", "pulp", "pydantic", "scipy"}
    assert modules & heavy == set()


def test_everything_but_strategies_works_without_hypothesis_and_pytest():
    code = """
import sys
sys.modules["hypothesis"] = sys.modules["pytest"] = None
import pulp
from flowlex.testing import assert_optimum, formulation, instances, mutate
problem = pulp.LpProblem()
problem += problem.add_variable("x", 2)
assert_optimum(problem, 2)
try:
    instances("gpu-assignment")
except ImportError:
    print("no hypothesis")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "no hypothesis\n"
