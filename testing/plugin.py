"""The pytest plugin: ``--mutate-formulations`` runs the tests on mutants of the formulations that they build.

Loaded by entry point in every run of pytest where flowlex is installed, so it imports nothing heavy until asked.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from flowlex.testing.mutation_tests import Record, Report


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options."""
    group = parser.getgroup("flowlex", "mutation tests of formulations (flowlex)")
    group.addoption(
        "--mutate-formulations",
        action="store_true",
        help="run the tests on mutants of the functions marked @formulation, and list the mutants that survive",
    )
    group.addoption("--mutate-single", action="store_true", help="mutate each row and column alone, too")


def pytest_configure(config: pytest.Config) -> None:
    """Take over the run where mutants are asked for."""
    if config.getoption("mutate_single") and not config.getoption("mutate_formulations"):
        raise pytest.UsageError("--mutate-single needs --mutate-formulations")
    if not config.getoption("mutate_formulations"):
        return
    if config.getoption("numprocesses", None):
        raise pytest.UsageError("--mutate-formulations runs in one process; leave out -n, or add -n 0")
    config.pluginmanager.register(_Mutation(bool(config.getoption("mutate_single"))), "flowlex-mutation")


class _Mutation:
    """Runs each test once without mutants, all fixtures anew, then again on each mutant of what it built."""

    def __init__(self, single: bool) -> None:
        from flowlex.testing.mutation_tests import Record

        self.record: Record = Record(single)
        self.reports: list[Report] = []
        self.items: dict[str, pytest.Item] = {}
        self.mutating = False
        self.failed: BaseException | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool:
        """Run a test with fixtures of its own, so that each run builds its programs."""
        from _pytest.runner import runtestprotocol

        self.failed = None
        if self.mutating:
            runtestprotocol(item, log=False, nextitem=None)
            return True
        self.items[item.nodeid] = item
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        with self.record.recording(item.nodeid):
            runtestprotocol(item, nextitem=None)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        if self.failed is not None:
            self.record.forget(item.nodeid)
        return True

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Keep what a test failed with."""
        report = yield
        if report.failed and self.failed is None:
            self.failed = call.excinfo.value if call.excinfo else AssertionError(str(report.longrepr))
        return report

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        """Run the mutants after the tests."""
        from flowlex.testing.mutation_tests import examine

        done = yield
        if session.config.option.collectonly or session.shouldstop or session.shouldfail:
            return done
        self.mutating = True
        self.reports = examine(self.record, self._run)
        return done

    def _run(self, name: str) -> BaseException | None:
        item = self.items[name]
        with _quick(item):
            item.ihook.pytest_runtest_protocol(item=item, nextitem=None)
        failed = self.failed
        return AssertionError(str(failed)) if isinstance(failed, pytest.fail.Exception) else failed

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail the run if a mutant survives, or if there is nothing to mutate."""
        if self.mutating and session.exitstatus == pytest.ExitCode.OK and not self._clean():
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """List the survivors."""
        terminalreporter.section("mutants of formulations")
        if not self.reports:
            terminalreporter.line("no passing test calls a function marked with flowlex.testing.formulation")
        for report in self.reports:
            terminalreporter.line(str(report))

    def _clean(self) -> bool:
        return bool(self.reports) and not any(report.survivors for report in self.reports)


@contextmanager
def _quick(item: pytest.Item) -> Iterator[None]:
    """Let Hypothesis stop at the first failure, without shrinking, database or deadline."""
    test, name = getattr(item, "function", None), "_hypothesis_internal_use_settings"
    usual = getattr(test, name, None)
    if usual is None:
        yield
        return
    from hypothesis import HealthCheck, Phase, settings

    phases = (Phase.explicit, Phase.generate)
    setattr(
        test,
        name,
        settings(
            usual,
            phases=phases,
            database=None,
            deadline=None,
            derandomize=True,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        ),
    )
    try:
        yield
    finally:
        setattr(test, name, usual)
