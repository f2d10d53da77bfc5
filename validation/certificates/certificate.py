"""Certificates: named checks that are recomputed from data, and that anybody can read and repeat."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal, TypeAlias

from flowlex.errors import FlowlexError

#: What is certified. ``bounded``: feasible, with a bound that is proven.
Claim: TypeAlias = Literal["optimal", "bounded", "feasible", "infeasible", "unbounded"]
#: ``recomputed`` from the data, or ``quoted`` from the solver without proof.
How: TypeAlias = Literal["recomputed", "quoted"]
#: Of a statement: ``proven`` from the data, only ``quoted`` from the solver, or ``refused`` because it is false.
Verdict: TypeAlias = Literal["proven", "quoted", "refused"]


#: The claims that support each status. An optimum with a weaker claim is quoted.
SUPPORTING: Mapping[str, tuple[Claim, ...]] = {
    "optimal": ("optimal",),
    "feasible": ("optimal", "bounded", "feasible"),
    "infeasible": ("infeasible",),
    "unbounded": ("unbounded",),
}
#: Weaker claims that a stated certificate may make if more is shown.
WEAKER: Mapping[str, tuple[Claim, ...]] = {
    "optimal": ("optimal", "bounded", "feasible"),
    "bounded": ("bounded", "feasible"),
}


class CertificateError(FlowlexError, AssertionError):
    """An answer contradicts its own data. Please report it with the instance."""


@dataclass(frozen=True)
class Check:
    """One statement about an answer.

    Attributes
    ----------
    name
        The statement, such as ``flow conservation``.
    ok
        Whether it holds.
    worst
        The largest violation found (an exact integer for networks), 0 when there is none.
    detail
        The offender when it fails, the figures when it holds.
    how
        ``recomputed`` from the data, or ``quoted`` from the solver. A quoted check cannot support ``optimal``.
    """

    name: str
    ok: bool
    worst: float | int = 0
    detail: str = ""
    how: How = "recomputed"

    @classmethod
    def none(cls, name: str, offenders: Sequence[str]) -> Check:
        """Nothing offends; the first three offenders are named.

        Parameters
        ----------
        name
            What is checked.
        offenders
            What breaks it; empty where it holds.
        """
        return cls(name, not offenders, len(offenders), ", ".join(offenders[:3]))

    @property
    def verdict(self) -> Verdict:
        """Proven, quoted or refused."""
        if not self.ok:
            return "refused"
        return "quoted" if self.how == "quoted" else "proven"


@dataclass(frozen=True)
class Finding:
    """The finding of a verifier.

    Attributes
    ----------
    claim
        The claim that the checks support, if all hold.
    objective, bound
        Recomputed; None if the document must state none. The checks prove or quote the bound.
    stages, metrics
        Recomputed figures by name.
    unjudged, words
        Metrics that the answer does not determine, such as how it was found: numbers of at least 0, and texts. All
        others must be recomputed.
    bounds
        What is proven of each stage, up to the first that is not at its bound.
    tolerance, gap
        Accepted relative difference of figures, 0 if all are exact; the gap, if the problem has its own measure.
    """

    claim: Claim
    checks: tuple[Check, ...]
    objective: Fraction | int | None = None
    bound: Fraction | int | None = None
    stages: Mapping[str, Fraction | int] = field(default_factory=dict)
    metrics: Mapping[str, float | int | Fraction | str] = field(default_factory=dict)
    unjudged: Collection[str] = ()
    words: Collection[str] = ()
    tolerance: float = 0.0
    gap: float | None = None
    bounds: Mapping[str, Fraction] = field(default_factory=dict)


@dataclass(frozen=True)
class Certificate:
    """All checks made of one answer.

    Raises
    ------
    ValueError
        The claim is ``optimal`` and a check is quoted.

    Attributes
    ----------
    claim
        The claim that the checks together prove.
    exact
        True when everything was recomputed in integers, without tolerance.
    checks
        In the order they were made.
    tolerance
        Largest violation accepted; 0 when exact.
    """

    claim: Claim
    exact: bool
    checks: tuple[Check, ...]
    tolerance: float = 0.0

    def __post_init__(self) -> None:
        if self.claim == "optimal" and (quoted := [check.name for check in self.checks if check.how == "quoted"]):
            raise ValueError(f"{quoted[0]!r} is quoted from the solver, which proves no optimum; claim 'bounded'")

    @property
    def ok(self) -> bool:
        """Whether every check holds; a certificate without checks proves nothing."""
        return bool(self.checks) and all(check.ok for check in self.checks)

    @property
    def verdict(self) -> Verdict:
        """Refused if any check is, else quoted if any check is, else proven."""
        if not self.ok:
            return "refused"
        return "quoted" if any(check.how == "quoted" for check in self.checks) else "proven"

    def including(self, checks: Iterable[Check]) -> Certificate:
        """The certificate with more checks.

        Parameters
        ----------
        checks
            Appended to the existing ones; claim and tolerance stay.

        Raises
        ------
        ValueError
            The claim is ``optimal`` and a check is quoted.
        """
        return Certificate(self.claim, self.exact, (*self.checks, *checks), self.tolerance)

    def require(self, what: str) -> Certificate:
        """Return self, or raise `CertificateError` naming the checks that ``what`` fails.

        Parameters
        ----------
        what
            What is certified, such as model and instance; the message begins with it.

        Raises
        ------
        CertificateError
            A check fails, or there is none.
        """
        if self.ok:
            return self
        failed = "; ".join(f"{c.name}: {c.detail or c.worst}" for c in self.checks if not c.ok) or "nothing was checked"
        raise CertificateError(f"{what}: the certificate fails ({failed}); please report this with the instance")

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "ok": self.ok,
            "claim": self.claim,
            "exact": self.exact,
            "tolerance": self.tolerance,
            "checks": [
                {"name": c.name, "ok": c.ok, "worst": _plain(c.worst), "detail": c.detail, "how": c.how}
                for c in self.checks
            ],
        }

    @property
    def summary(self) -> str:
        """One line: what is claimed, and how much of it is proven."""
        if not self.ok:
            failed = [check.name for check in self.checks if not check.ok]
            return f"{self.claim}, refused: {len(failed)} of {len(self.checks)} checks fail ({failed[0]})"
        quoted = [check.name for check in self.checks if check.verdict == "quoted"]
        if len(quoted) == len(self.checks):
            return f"{self.claim}, not proven; quoted from the solver: {', '.join(quoted)}"
        how = "exactly" if self.exact else f"to a tolerance of {self.tolerance:g}"
        rest = f"; quoted, not proven: {', '.join(quoted)}" if quoted else ""
        return f"{self.claim}, proven {how}: {len(self.checks) - len(quoted)} checks{rest}"

    def __str__(self) -> str:
        lines = [self.summary]
        for c in self.checks:
            says = f"{c.name}{' (quoted)' if c.how == 'quoted' else ''}{': ' + c.detail if c.detail else ''}"
            lines.append(f"  {'ok  ' if c.ok else 'FAIL'} {says}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        from html import escape

        rows = "".join(
            f"<tr><td>{'✓' if c.ok else '✗'}</td><td style='text-align:left'>{escape(c.name)}</td>"
            f"<td style='text-align:left'>{escape(c.detail)}</td></tr>"
            for c in self.checks
        )
        return f"<table><caption>{escape(str(self).splitlines()[0])}</caption>{rows}</table>"


def _plain(value: float | int) -> float | int:
    return int(value) if isinstance(value, int) else float(value)
