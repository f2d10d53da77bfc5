"""The parts of a solution that all models share."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from flowlex.errors import FlowlexError
from flowlex.formulations.program_arrays import locked
from flowlex.formulations.solver_outcome import Infeasibility, Status, Unboundedness
from flowlex.instances.file_storage import json_text, refuse_existing, write_atomically
from flowlex.instances.instance_base import Instance
from flowlex.instances.model_changes import Changes
from flowlex.models.dual_values import Dual, Duals
from flowlex.models.html_report import html_report, html_table
from flowlex.validation.certificates import Certificate

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

__all__ = ["Dual", "ModelError", "Seconds", "Solution", "plain"]


class ModelError(FlowlexError, ValueError):
    """An instance breaks an assumption of a model, or options contradict each other; names the offender."""


def plain(value: Fraction) -> float | int:
    """An integer as it is, any other number as the nearest float."""
    return int(value) if value.denominator == 1 else float(value)


@dataclass(frozen=True)
class Seconds:
    """Wall-clock seconds of the phases of a solve."""

    compile: float = 0.0
    solve: float = 0.0
    check: float = 0.0

    @property
    def total(self) -> float:
        """Sum of all phases."""
        return self.compile + self.solve + self.check


@dataclass(frozen=True, eq=False)
class Stated:
    """The answer of a solved statement."""

    method: str  # how it was solved
    #: Values that are not 0, by variable and label; None without an answer.
    values: Mapping[str, Mapping[str, int | float]] | None
    proof: Mapping[str, Any] = field(repr=False)  # of every stage, as files hold it
    slack: Mapping[str, Dual] = field(repr=False)  # distance of every row from its side, by name and label
    written: Mapping[str, Mapping[str, int | str]]  # the values as files hold them: integers, or fractions as text


@dataclass(frozen=True, kw_only=True)
class Solution:
    """The common part of every solution; a model adds its domain result through the methods with an underscore.

    Attributes
    ----------
    model, engine
        Names of the model and of the engine.
    source
        The instance that was solved.
    options
        The model's options, as plain data.
    status
        `Status`; only ``optimal`` and ``feasible`` come with an answer.
    objective, bound, gap
        In the model's units; ``bound`` is proven.
    stages
        Objective of each stage by name, where solving takes stages.
    duals
        `Dual` by name of the constraint, exactly those that the model's equations declare.
    certificate
        The recomputed checks; attached to every answer but those of ``solve(certify=False)``, whose message says so.
    infeasibility, unboundedness
        Why there is no answer, or no best one.
    changes
        Changes of the model.
    stated
        Values, slacks and proof by name and label, if the statement itself was solved.
    unproven
        Whether the proof failed and was left out: the answer is then only ``feasible``.
    """

    #: The column whose values name the rows of the answer's table; empty if they have no names.
    row_name: ClassVar[str] = ""
    #: Variables of the statement that must be integers for `_answer` to be what they say.
    decision: ClassVar[tuple[str, ...]] = ()

    model: str
    engine: str
    source: Instance = field(repr=False)
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    status: Status
    objective: float | int | None = None
    bound: float | int | None = None
    gap: float | None = None
    stages: Mapping[str, float | int] = field(default_factory=dict)
    duals: Mapping[str, Dual] = field(default_factory=dict, repr=False)
    certificate: Certificate | None = field(default=None, repr=False)
    seconds: Seconds = Seconds()
    message: str = ""
    infeasibility: Infeasibility | None = field(default=None, repr=False)
    unboundedness: Unboundedness | None = field(default=None, repr=False)
    changes: Changes = field(default_factory=Changes, repr=False)
    stated: Stated | None = field(default=None, repr=False)
    unproven: bool = field(default=False, repr=False)

    def __post_init__(self) -> None:
        if type(self.duals) is dict:  # others say why there are none
            object.__setattr__(self, "duals", Duals(self.duals))
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, np.ndarray):
                object.__setattr__(self, each.name, locked(value))

    @property
    def instance(self) -> str:
        """The instance's name."""
        return self.source.name

    def to_columns(self) -> Mapping[str, Any]:
        """The answer as a table: its columns by name, all of one length.

        Raises
        ------
        ModelError
            There is no answer.
        """
        self.require_answer()
        return self._columns()

    def to_frame(self) -> pd.DataFrame:
        """The answer as a table for pandas: `to_columns`, with what names the rows as index.

        Raises
        ------
        ModelError
            There is no answer.
        """
        import pandas as pd

        frame = pd.DataFrame(dict(self.to_columns()))
        return frame.set_index(self.row_name) if self.row_name else frame

    def plot(self, ax: Axes | None = None) -> Axes:
        """The answer as a picture, drawn on ``ax`` or on a new figure.

        Parameters
        ----------
        ax
            Axes of matplotlib to draw on; None: those of a new figure.

        Raises
        ------
        ModelError
            There is no answer, or ``ax`` is something else.
        """
        self.require_answer()
        if ax is not None and not hasattr(ax, "get_figure"):
            raise ModelError(f"plot: expected axes of matplotlib, got {ax!r}")
        return self._draw(ax)

    def metrics(self) -> dict[str, float | int | str]:
        """The figures by which the answer is judged, with units in their names, in the order to be printed.

        Raises
        ------
        ModelError
            There is no answer.
        """
        self.require_answer()
        return dict(self._figures)

    @cached_property
    def _figures(self) -> dict[str, float | int | str]:
        return self._metrics()

    def finished(self, certificate: Certificate | None, seconds: Seconds) -> Self:
        """The same solution with its certificate and times; figures are not recomputed.

        Parameters
        ----------
        certificate
            None if nothing was certified.
        seconds
            Wall-clock seconds of compiling, solving and checking.
        """
        done = replace(self, certificate=certificate, seconds=seconds)
        if "_figures" in self.__dict__:
            done.__dict__["_figures"] = self._figures
        return done

    def without_claims(self, message: str) -> Self:
        """The same answer as one that is feasible, without bound, duals and proof.

        Parameters
        ----------
        message
            Why the claims are dropped; it is appended to the solution's own message.
        """
        note = f"{self.message} {message}".lstrip()
        return replace(self, status=Status.FEASIBLE, bound=None, gap=None, duals={}, message=note, unproven=True)

    def _columns(self) -> Mapping[str, Any]:
        raise NotImplementedError(f"{type(self).__name__} has no table")

    def _draw(self, ax: Axes | None) -> Axes:
        raise NotImplementedError(f"{type(self).__name__} has no picture")

    def _metrics(self) -> dict[str, float | int | str]:
        return {}

    def _answer(self) -> dict[str, Any]:
        """What was decided, in the instance's own names; only called when there is an answer."""
        return {}

    def _proof(self) -> dict[str, Any]:
        """The data, beside the answer, with which `flowlex.validation.certificates` proves the claim."""
        return {}

    def to_dict(self) -> dict[str, Any]:
        """The solution file: plain data from which `flowlex verify` proves or refuses the answer."""
        if self.stated is not None:
            return self._changed_document(self.stated)
        answered = self.status.has_answer
        return {
            "kind": f"{self.source.kind}-solution",
            "version": 3,
            "instance": self.instance,
            "fingerprint": self.source.fingerprint,
            "model": self.model,
            "options": dict(self.options),
            "engine": self.engine,
            "status": str(self.status),
            "objective": self.objective,
            "bound": self.bound,
            "gap": self.gap,
            "stages": dict(self.stages),
            "message": self.message,
            "metrics": self.metrics() if answered else {},
            "answer": self._answer() if answered else {},
            "duals": {},
            "proof": {} if self.unproven else self._proof(),
            "certificate": None if self.certificate is None else self.certificate.to_dict(),
        }

    def _changed_document(self, stated: Stated) -> dict[str, Any]:
        """The solution file of a changed model: values by variable and label, and the proof of each stage."""
        plain_document = replace(self, stated=None, status=Status.ERROR, duals={}).to_dict()
        values = {} if stated.values is None else stated.values
        whole = all(value == int(value) for name in self.decision for value in values.get(name, {}).values())
        told = stated.values is not None and whole
        beside = stated.values is not None or self.status is Status.INFEASIBLE
        return plain_document | {
            "status": str(self.status),
            "changes": self.changes.plain(),
            "values": None if stated.values is None else stated.written,
            "metrics": self.metrics() if told else {},
            "answer": self._answer() if told else self._beside_values() if beside else {},
            "proof": dict(stated.proof),
        }

    def _beside_values(self) -> dict[str, Any]:
        """What the answer says where relaxed variables split the decision, or where there is none."""
        return {}

    def save(self, path: str | Path, *, file: str = "", force: bool = False) -> Path:
        """Write the solution file, from which ``flowlex verify`` proves or refuses the answer.

        Parameters
        ----------
        path
            Target: a name that ends in ``.json`` or, compressed, ``.json.gz``. `flowlex verify` finds
            ``*.solution.json`` in folders.
        file
            Name of the instance file, by which a folder of instances is searched.
        force
            Whether to overwrite a file that is there already.

        Raises
        ------
        ModelError
            The name has another ending.
        FileExistsError
            The file is there already; use ``force=True``.
        OSError
            The file cannot be written.

        Examples
        --------
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> from flowlex import generate, solve
        >>> with TemporaryDirectory() as folder:
        ...     solve(generate("gpu-figure1")).save(Path(folder, "figure1.solution.json")).name
        'figure1.solution.json'
        """
        target = Path(path)
        if not target.name.endswith((".json", ".json.gz")):
            raise ModelError(f"{target}: expected a name that ends in .json or .json.gz")
        refuse_existing(target, force=force)
        document = self.to_dict()
        kind = document.pop("kind")
        try:
            write_atomically(target, json_text({"kind": kind, "file": file, **document}).encode())
        except OSError as error:
            raise OSError(error.errno, f"cannot be written: {error.strerror or error}", str(path)) from error
        return target

    def to_html(self) -> str:
        """The answer as one page that needs no network: a picture to zoom, a table to search, figures, certificate.

        Raises
        ------
        ModelError
            There is no answer.
        """
        from flowlex.formulations.plot_style import picture_bytes, quiet_backend

        self.require_answer()
        facts = {"status": self.status, "objective": self.objective, "bound": self.bound, **self.metrics()}
        picture, frame = "", None
        with contextlib.suppress(NotImplementedError), quiet_backend():  # not every answer is a picture
            picture = picture_bytes(self.plot(), "svg").decode()
        with contextlib.suppress(NotImplementedError):
            frame = self.to_frame()
        return html_report(f"{self.model}: {self.instance}", facts, picture, frame, str(self.certificate))

    def open(self) -> Path:
        """Show the page of `to_html` in the browser; the file stays in the temporary folder.

        Raises
        ------
        ModelError
            There is no answer.
        """
        import tempfile
        import webbrowser

        page = self.to_html()
        with tempfile.NamedTemporaryFile("w", prefix="flowlex-", suffix=".html", delete=False) as stream:
            stream.write(page)
        webbrowser.open(f"file://{stream.name}")
        return Path(stream.name)

    def require_answer(self) -> None:
        """Raise `ModelError` saying why, unless there is an answer to look at."""
        if not self.status.has_answer:
            raise ModelError(f"{self.instance}: there is no answer ({self.status}). {self.message}".strip())

    def _repr_html_(self) -> str:
        facts = {"status": self.status, "objective": self.objective, "gap": self.gap, "engine": self.engine}
        if self.status.has_answer:
            facts |= self.metrics()
        if self.certificate is not None:
            facts["certificate"] = self.certificate.summary
        elif self.status.has_answer:
            facts["certificate"] = self.message or "none"
        return html_table(f"{self.model}: {self.instance}", facts)
