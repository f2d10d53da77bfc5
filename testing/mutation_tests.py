"""Mutation tests of formulations: which mistakes in a program do its tests notice?"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, TypeVar, overload

from flowlex.testing.canonical_program import Program
from flowlex.testing.formulation_mutants import Mutant, mutants_of
from flowlex.testing.mutant_witness import Change, judge
from flowlex.testing.program_adapters import program_of, rewrite
from flowlex.testing.row_names import UnknownNameError

Builder = TypeVar("Builder", bound=Callable[..., Any])
Fate: TypeAlias = Literal["killed", "optimum", "answers", "crashed", "expected", "equivalent"]

#: Number of programs on which a survivor is judged: the smallest that its tests built.
_JUDGED = 5
#: Number of programs kept for that.
_KEPT = 200


@dataclass(frozen=True, eq=False)
class Formulation:
    """A marked function that builds programs."""

    name: str
    on: tuple[str, ...]
    families: tuple[str, ...]
    expected: Mapping[str, str]


#: Functions that receive what a marked function has built, and may return a mutant of it.
_watchers: list[Callable[[Formulation, Any], Any]] = []


@overload
def formulation(function: Builder, /) -> Builder: ...
@overload
def formulation(
    *, on: Iterable[str] = ..., families: Iterable[str] = ..., expected: Mapping[str, str] = ...
) -> Callable[[Builder], Builder]: ...
def formulation(
    function: Any = None,
    /,
    *,
    on: Iterable[str] = (),
    families: Iterable[str] = (),
    expected: Mapping[str, str] = MappingProxyType({}),
) -> Any:
    """Mark a function that builds a program, so that mutation tests can change what it returns.

    Without mutation tests the function works as before. What it returns is a PuLP problem (changed in place, so that
    variables that the caller holds stay valid), a `flowlex.Problem`, a `LinearProgram`, a `FlowNetwork`, `Staged` or a
    HiGHS model (of these a changed copy is returned).

    Parameters
    ----------
    on
        Columns or families that are the answer; a mutant that changes only the others is equivalent. All when empty.
    families
        Names of families of rows and columns of a PuLP or HiGHS model. A row ``share_memory_A`` belongs to the longest
        family with which its name begins, up to a bracket or underscore. The family of any other row is the text
        before the first bracket or underscore. Our own programs declare their blocks.
    expected
        Accepted survivors: mutant (as reports print it) to reason.

    Examples
    --------
    >>> import pulp
    >>> from flowlex.testing import assert_optimum, formulation, mutate
    >>> @formulation
    ... def knapsack(room):
    ...     problem = pulp.LpProblem("knapsack", pulp.LpMaximize)
    ...     x = problem.add_variable_dicts("x", ["A", "B"], 0, 1, "Integer")
    ...     problem += 3 * x["A"] + 2 * x["B"]
    ...     problem += 2 * x["A"] + 2 * x["B"] <= room, "room"
    ...     return problem
    >>> def test_one_fits():
    ...     assert_optimum(knapsack(2), 3)
    >>> (report,) = mutate(test_one_fits)
    >>> for result in report.survivors:
    ...     print(result)
    x: lost lower bound: answers; the mutant allows x_A = -1, x_B = 1: x_A = -1, expected between 0 and 1
    x: swapped columns: answers; the mutant calls x_B = 1 optimal: objective 2, expected 3
    """
    if function is None:
        return functools.partial(formulation, on=on, families=families, expected=expected)
    marked = Formulation(function.__name__, tuple(on), tuple(families), dict(expected))

    @functools.wraps(function)
    def build(*arguments: Any, **keywords: Any) -> Any:
        made = function(*arguments, **keywords)
        for watch in _watchers:
            made = watch(marked, made)
        return made

    return build


@dataclass
class Record:
    """The formulations that passing tests build, and their mutants.

    ``single``: whether single rows and columns are mutated, too.
    """

    single: bool = False
    mutants: dict[Formulation, dict[Mutant, None]] = field(default_factory=dict)
    tests: dict[Formulation, dict[str, float]] = field(default_factory=dict)

    @contextmanager
    def recording(self, test: str) -> Iterator[None]:
        """Record what a test builds."""
        started = time.process_time()
        used: set[Formulation] = set()

        def watch(marked: Formulation, made: Any) -> Any:
            known = self.mutants.setdefault(marked, {})
            known.update(dict.fromkeys(mutants_of(program_of(made, marked.families), single=self.single)))
            used.add(marked)
            return made

        with _watching(watch):
            yield
        for marked in used:
            self.tests.setdefault(marked, {})[test] = time.process_time() - started

    def forget(self, test: str) -> None:
        """Leave out a test that fails without mutants."""
        for tests in self.tests.values():
            tests.pop(test, None)


@dataclass(frozen=True)
class Result:
    """The fate of a mutant: ``killed`` by a test's assertion, or how it survives."""

    mutant: Mutant
    fate: Fate
    text: str = ""

    def __str__(self) -> str:
        return f"{self.mutant}: {self.fate}{f'; {self.text}' if self.text else ''}"


@dataclass(frozen=True)
class Report:
    """The fates of all mutants of a formulation."""

    formulation: str
    tests: tuple[str, ...]
    results: tuple[Result, ...]

    @property
    def survivors(self) -> tuple[Result, ...]:
        """Unexpected mutants that change the optimum or the answers, or that only crash a test."""
        return tuple(result for result in self.results if result.fate in ("optimum", "answers", "crashed"))

    def __str__(self) -> str:
        fates = [result.fate for result in self.results]
        counts = ", ".join(f"{fates.count(fate)} {fate}" for fate in ("killed", "expected", "equivalent"))
        head = f"{self.formulation}: {len(fates)} mutants, {len(self.survivors)} survive, {counts}"
        return "\n".join([head, *(f"  {result}" for result in self.results if result.fate != "killed")])


def mutate(*tests: Callable[[], object], single: bool = False) -> list[Report]:
    """Run tests on all mutants of the formulations that they build, without pytest.

    Parameters
    ----------
    tests
        Functions without arguments; they must pass without mutants.
    single
        Also mutate each row and column alone.

    Returns
    -------
    list of Report
        One for each function marked with `formulation` that the tests call.

    Raises
    ------
    ValueError
        A test fails without a mutant, or no test builds a marked formulation.
    """
    record, named = Record(single), {f"{test.__name__}": test for test in tests}
    for name, test in named.items():
        with record.recording(name):
            if (error := _failure(test)) is not None:
                raise ValueError(f"{name} fails without a mutant: {error}") from error
    if not record.mutants:
        raise ValueError("no test calls a function marked with @formulation")
    return examine(record, lambda name: _failure(named[name]))


def examine(record: Record, run: Callable[[str], BaseException | None]) -> list[Report]:
    """Run recorded tests on all recorded mutants; ``run`` returns how a test fails."""
    reports = []
    for marked, mutants in record.mutants.items():
        tests = sorted(record.tests.get(marked, {}), key=record.tests.get(marked, {}).__getitem__)
        unknown = [text for text in marked.expected if text not in map(str, mutants)]
        if unknown:
            raise UnknownNameError(f"{marked.name}: there is no mutant {unknown[0]!r} to expect; leave it out")
        results = tuple(_result(marked, mutant, tests, run) for mutant in mutants)
        reports.append(Report(marked.name, tuple(tests), results))
    return reports


def _result(
    marked: Formulation, mutant: Mutant, tests: Sequence[str], run: Callable[[str], BaseException | None]
) -> Result:
    pairs: list[tuple[Program, Program]] = []

    def watch(built: Formulation, made: Any) -> Any:
        if built is not marked:
            return made
        before = program_of(made, marked.families)
        after = mutant.apply(before)
        if after is None:
            return made
        if len(pairs) < _KEPT:
            pairs.append((before, after))
        return rewrite(made, before, after)

    crashes = []
    with _watching(watch):
        for test in tests:
            failed = run(test)
            if isinstance(failed, AssertionError):
                return Result(mutant, "killed", test)
            if failed is not None:
                crashes.append(f"{test} ends in {type(failed).__name__}: {failed}")
    if str(mutant) in marked.expected:
        return Result(mutant, "expected", marked.expected[str(mutant)])
    if crashes:
        return Result(mutant, "crashed", crashes[0])
    return _judged(marked, mutant, pairs)


def _judged(marked: Formulation, mutant: Mutant, pairs: list[tuple[Program, Program]]) -> Result:
    """Classify a survivor by its worst change in the smallest programs built."""
    found: dict[Fate, Change] = {}
    for before, after in sorted(pairs, key=lambda pair: len(pair[0].columns.names))[:_JUDGED]:
        change = judge(before, after, marked.on)
        found.setdefault(change.what, change)
        if change.what == "optimum":
            break
    fates: tuple[Fate, ...] = ("optimum", "answers", "equivalent")
    worst: Fate = next((fate for fate in fates if fate in found), "equivalent")
    return Result(mutant, worst, found[worst].text if worst in found else "no test builds what it changes")


@contextmanager
def _watching(watch: Callable[[Formulation, Any], Any]) -> Iterator[None]:
    """Let a function see and change what marked functions build; watchers of an outer run see nothing."""
    outer, _watchers[:] = _watchers[:], [watch]
    try:
        yield
    finally:
        _watchers[:] = outer


def _failure(test: Callable[[], object]) -> Exception | None:
    try:
        test()
    except Exception as error:
        return error
    return None
