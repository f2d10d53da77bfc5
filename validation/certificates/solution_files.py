"""Solution files: read, and verified against their instance."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from flowlex.formulations.language.problem_document import fingerprint
from flowlex.formulations.language.statement import Statement
from flowlex.instances.files import read, read_instance, read_json
from flowlex.instances.input_errors import InstanceError
from flowlex.instances.instance_base import Instance
from flowlex.instances.model_changes import Changes, read_changes
from flowlex.validation.certificates.certificate import Certificate
from flowlex.validation.certificates.proof_time_budget import Budget
from flowlex.validation.certificates.solution_document import SolutionError
from flowlex.validation.certificates.verifier_interface import require_solution
from flowlex.validation.certificates.verifier_interface import verify as verify_document
from flowlex.validation.proofs.solution_file import verify_solution


class _Solution(Protocol):
    def to_dict(self) -> dict[str, Any]: ...


def read_solution(path: str | Path) -> Any:
    """The document of a solution file, JSON or JSON compressed by gzip.

    Raises `InstanceError`: it cannot be read, or is no JSON. Raises `SolutionError`: it holds something else
    than a solution, such as an instance (of any format).
    """
    try:
        document = read_json(path)
    except InstanceError:
        with contextlib.suppress(InstanceError):
            require_solution({"kind": read_instance(path).kind})
        raise
    require_solution(document)
    return document


def verify(
    solution: _Solution | str | Path | Mapping[str, Any],
    instance: Instance | Statement | str | Path | Mapping[str, Any],
    *,
    changes: Changes | Mapping[str, Any] | str | Path | None = None,
    time_limit_s: float | None = None,
) -> Certificate:
    """Prove or refuse a solution from its instance alone, as ``flowlex verify`` does; no solver is called.

    Parameters
    ----------
    solution
        A solution, the path of its file, or the document that the file holds.
    instance
        The instance or problem that it is said to solve, or whatever `flowlex.read` takes, such as its path.
    changes
        The rules and other changes that the solution must be solved under, exactly these: `Changes`, their plain data,
        or the path of their file. None: those that it states; the check ``rules it holds under`` lists them.
    time_limit_s
        Processor seconds for the proof; what is not recomputed by then is quoted.

    Returns
    -------
    Certificate
        ``ok`` is False where a check refuses the solution; ``verdict`` is ``proven``, ``quoted`` (a claim rests on the
        solver's word) or ``refused``; ``claim`` says what holds.

    Raises
    ------
    InstanceError
        A file cannot be read, or ``instance`` is not an instance.
    SolutionError
        ``solution`` is no solution, or of a version or kind that has no verifier; names the file.

    Examples
    --------
    >>> from flowlex import generate, solve, verify
    >>> instance = generate("gpu-figure1")
    >>> verify(solve(instance), instance).verdict
    'proven'
    """
    budget = None if time_limit_s is None else Budget(time_limit_s)
    try:
        if isinstance(solution, str | Path):
            document = read_solution(solution)
        elif hasattr(solution, "to_dict"):
            document = solution.to_dict()
        else:
            document = solution
        if isinstance(instance, Statement):
            if changes is not None:
                raise SolutionError("a problem in memory has its changes already; give none")
            return verify_solution(
                document,
                instance,
                kind="problem",
                name=None,
                fingerprint=fingerprint(instance),
                stated_in=f"the problem {instance.name!r} in memory",
                budget=budget,
            )
        demanded = None if changes is None else read_changes(dict(changes) if isinstance(changes, Mapping) else changes)
        return verify_document(document, read(instance), budget=budget, changes=demanded)
    except SolutionError as error:
        raise SolutionError(f"{solution}: {error}" if isinstance(solution, str | Path) else str(error)) from None
