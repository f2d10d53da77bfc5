"""``flowlex verify``: is a solution file true of its instance? Recomputed from both files; no solver is called."""

from __future__ import annotations

import contextlib
import json
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flowlex.cli.console_output import complain, note, printable
from flowlex.cli.exit_codes import EXIT_CODES, UNREADABLE, AcceptQuoted, exit_code
from flowlex.cli.input_files import SOLUTION_SUFFIX, discover
from flowlex.cli.options import positive

if TYPE_CHECKING:
    from flowlex.instances.instance_base import Instance
    from flowlex.instances.model_changes import Changes
    from flowlex.validation.certificates import Certificate


def verify(
    solution: Annotated[
        Path, typer.Argument(metavar="SOLUTION", help="A solution file, or a folder of them (*.solution.json, .gz).")
    ],
    instance: Annotated[
        Path, typer.Argument(metavar="INSTANCE", help="Its instance file, or the folder of the instances.")
    ],
    changes: Annotated[
        Path | None,
        typer.Option(
            "--changes", metavar="FILE", help="Rules and other changes that the answers must be solved under."
        ),
    ] = None,
    time_limit: Annotated[
        float | None,
        typer.Option(
            "--time-limit",
            metavar="S",
            callback=positive,
            help="Processor seconds per file; what is not recomputed by then is quoted.",
        ),
    ] = None,
    json_lines: Annotated[bool, typer.Option("--json", help="One JSON object per solution file.")] = False,
    accept_quoted: AcceptQuoted = False,
    write_vipr: Annotated[
        Path | None,
        typer.Option(
            "--write-vipr",
            metavar="FILE",
            help="Also write the proof of a problem's answer for viprchk; of several objectives a file each.",
        ),
    ] = None,
) -> None:
    """Prove or refuse solution files from their instances alone.

    Exit code 0: all that the file claims is proven. 1: refused; each failed check is printed with its figures. 2: a
    file cannot be read or judged. 3: the figures are right, but a claim, such as optimality or a bound, is only quoted
    from the solver. The rules under which an answer holds are printed below its line; --changes FILE refuses answers
    that were solved under others. Of a folder: 1 if any file is refused, else 2 if any cannot be read, else 3 if any is
    quoted.
    """
    if not solution.exists():
        raise typer.BadParameter(f"{solution} does not exist", param_hint="SOLUTION")
    if not instance.exists():
        raise typer.BadParameter(f"{instance} does not exist", param_hint="INSTANCE")
    files = _solutions(solution)
    if not files:
        raise typer.BadParameter(f"no *{SOLUTION_SUFFIX} files in {solution}", param_hint="SOLUTION")
    if write_vipr is not None and solution.is_dir():
        raise typer.BadParameter("give one solution file, not a folder", param_hint="--write-vipr")
    source, verdicts, demanded = _Instances(instance), [], _demanded(changes)
    for path in files:
        report, text = _report(path, source, demanded, time_limit)
        verdicts.append(report["verdict"])
        if json_lines:
            typer.echo(json.dumps(report | {"exit_code": exit_code(verdicts[-1:], accept_quoted)}, allow_nan=False))
        elif verdicts[-1] == UNREADABLE:
            complain(text)
        else:
            typer.echo(printable(text))
        if write_vipr is not None and verdicts[-1] in ("proven", "quoted"):
            _write_vipr(path, source, write_vipr)
    if len(files) > 1 and not json_lines:
        typer.echo(", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in EXIT_CODES))
    raise typer.Exit(exit_code(verdicts, accept_quoted))


def _write_vipr(path: Path, source: _Instances, target: Path) -> None:
    """Write the proof in the format of VIPR: one file for each objective."""
    from flowlex.instances.file_storage import refuse_existing, write_atomically
    from flowlex.instances.instance_base import InstanceError
    from flowlex.instances.problem import ProblemInstance
    from flowlex.models.problem_model import ProblemModel
    from flowlex.validation.certificates.solution_files import read_solution
    from flowlex.validation.proofs.vipr import ViprError, vipr_of_document

    document = read_solution(path)
    _, instance = source.of(document)
    try:
        if not isinstance(instance, ProblemInstance):
            raise ViprError(
                f"{instance.kind} is no problem file; only proofs of problems, .mps and .lp files are written"
            )
        files = vipr_of_document(document, ProblemModel.of_document(document, instance).problem)
        named = {
            target if len(files) == 1 else target.with_name(f"{target.stem}.{k}{target.suffix}"): (name, text)
            for k, (name, text) in enumerate(files.items(), 1)
        }
        for file in named:
            refuse_existing(file, force=False)
        for file, (name, text) in named.items():
            write_atomically(file, text.encode())
            note(f"{file}: {f'objective {name}' if name else 'no answer'}")
    except (ViprError, InstanceError, OSError) as error:
        complain(f"{path}: no VIPR file: {error}")
        raise typer.Exit(2) from error


def _demanded(path: Path | None) -> Changes | None:
    """The changes of the file of ``--changes``."""
    from flowlex.instances.instance_base import InstanceError
    from flowlex.instances.model_changes import read_changes

    try:
        return None if path is None else read_changes(path)
    except InstanceError as error:
        raise typer.BadParameter(str(error), param_hint="--changes") from error


def _report(
    path: Path, source: _Instances, changes: Changes | None, limit_s: float | None
) -> tuple[dict[str, Any], str]:
    """Return one line of ``--json``, and the same as text."""
    from flowlex.instances.instance_base import InstanceError
    from flowlex.validation.certificates import SolutionError
    from flowlex.validation.certificates import verify as judge
    from flowlex.validation.certificates.proof_time_budget import Budget
    from flowlex.validation.certificates.solution_files import read_solution

    budget = None if limit_s is None else Budget(limit_s)
    report: dict[str, Any] = {"solution": printable(path), "instance": None, "verdict": UNREADABLE}
    try:
        document = read_solution(path)
        name, instance = source.of(document)
        report["instance"] = printable(name)
        certificate = judge(document, instance, budget=budget, changes=changes)
    except SolutionError as error:
        report["message"] = f"{path}: {error}"
        return report, report["message"]
    except InstanceError as error:
        report["message"] = str(error)
        return report, report["message"]
    report |= {"verdict": certificate.verdict, **certificate.to_dict()}
    del report["checks"]
    report["claims"] = [
        {
            "name": check.name,
            "verdict": check.verdict,
            "worst": check.worst if abs(check.worst) < float("inf") else None,  # JSON has no infinity
            "detail": check.detail,
        }
        for check in certificate.checks
    ]
    return report, _text(path, certificate)


def _text(path: Path, certificate: Certificate) -> str:
    from flowlex.validation.certificates.verifier_interface import RULES
    from flowlex.validation.proofs.solution_file import PROVEN_FOR

    if certificate.ok:
        rules = "".join(f"\n  {RULES}: {each.detail}" for each in certificate.checks if each.name == RULES)
        basis = "".join(f"; {each.name}" for each in certificate.checks if each.name.startswith(PROVEN_FOR))
        return f"{path}: {certificate.summary}{basis}{rules}"
    lines = [f"{path}: refused"]
    lines += [f"  {check.name}: {check.detail or check.worst}" for check in certificate.checks if not check.ok]
    return "\n".join(lines)


def _solutions(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    names = (SOLUTION_SUFFIX, f"{SOLUTION_SUFFIX}.gz")
    return sorted(file for file in path.iterdir() if file.name.endswith(names) and file.is_file())


class _Instances:
    """An instance file, or a folder in which the instance of each solution is found by name or else by fingerprint."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._last: tuple[Path, Instance] | None = None

    def of(self, document: object) -> tuple[Path, Instance]:
        from flowlex.instances.instance_base import InstanceError

        if not self.path.is_dir():
            return self._read(self.path)
        fields = document if isinstance(document, dict) else {}
        named = Path(str(fields.get("file", ""))).name
        if named and (self.path / named).is_file():
            return self._read(self.path / named)
        wanted = fields.get("fingerprint")
        if isinstance(wanted, str) and (place := self._by_fingerprint.get(wanted)) is not None:
            return self._read(place)
        raise InstanceError(f"no file there is the instance of this solution ({named or wanted!r})", path=self.path)

    def _read(self, path: Path) -> tuple[Path, Instance]:
        from flowlex.instances.files import read_instance

        if self._last is None or self._last[0] != path:
            self._last = path, read_instance(path)
        return self._last

    @cached_property
    def _by_fingerprint(self) -> dict[str, Path]:
        from flowlex.instances.files import read_instance
        from flowlex.instances.instance_base import InstanceError

        found = {}
        for file in discover([self.path]).files:
            with contextlib.suppress(InstanceError):  # other, broken files do not matter
                found[read_instance(file).fingerprint] = file
        return found
