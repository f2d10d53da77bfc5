"""A problem of one's own as an instance: a problem file, or a model file (``.mps``, ``.lp``) as it is."""

from __future__ import annotations

import pkgutil
import re
from functools import cached_property, partial
from typing import Any, Literal

from pydantic import Field, PrivateAttr

from flowlex.instances.files import TextFormat, register_text_format
from flowlex.instances.input_errors import InstanceError
from flowlex.instances.instance_base import Instance

#: What a model file begins with, after comments.
_MPS = re.compile(r"(\s*(\*[^\n]*)?\n)*(NAME|ROWS|OBJSENSE|OBJSENSE\b.*)([ \t\r\n]|$)")
_LP = re.compile(r"(\s*(\\[^\n]*)?\n)*\s*(minimi[sz]e|maximi[sz]e|minimum|maximum|min|max)(\s|$)", re.IGNORECASE)


class ProblemInstance(Instance):
    """A problem that its file states whole: variables, rows and objectives.

    `flowlex.Problem` makes such files, and reads them; see the page *State your own problem*.

    Attributes
    ----------
    format
        ``json``: the problem's own document. ``mps``, ``lp``: a model file, whose content is ``text``.
    text
        Content of a model file.
    levels, data, variables, rows, objectives
        The parts of a problem's document.
    """

    kind: Literal["problem"] = "problem"
    name: str = "problem"
    format: Literal["json", "mps", "lp"] = "json"
    text: str = ""
    levels: dict[str, Any] = Field(default_factory=dict)
    data: dict[str, Any] = Field(default_factory=dict)
    variables: dict[str, Any] = Field(default_factory=dict)
    rows: dict[str, Any] = Field(default_factory=dict)
    objectives: list[Any] = Field(default_factory=list)
    #: The file that was read, for errors in its content.
    _file: str = PrivateAttr("")

    def __eq__(self, other: object) -> bool:
        """Equal content; the file that it was read from does not count."""
        return isinstance(other, ProblemInstance) and self.model_dump(mode="json") == other.model_dump(mode="json")

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    @property
    def file(self) -> str:
        """The file that was read; empty if the instance was made otherwise."""
        return self._file

    @property
    def content(self) -> Any:
        """The text of a model file, or the document of a problem."""
        if self.format != "json":
            return self.text
        parts = ("kind", "version", "name", "levels", "data", "variables", "rows", "objectives")
        return {part: getattr(self, part) for part in parts}

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the problem that is stated, whatever the format of its file.

        Raises `ValueError`: the content states no problem.
        """
        # By name, as instances import no formulations.
        found = pkgutil.resolve_name("flowlex.formulations.language.program_conversion:content_fingerprint")
        return str(found(self.format, self.content, self.name))

    def summary(self) -> dict[str, str | int | float]:
        """What the file holds."""
        if self.format != "json":
            return {"format": self.format, "lines": self.text.count("\n")}
        parts = {"levels": self.levels, "variables": self.variables, "rows": self.rows}
        goals = [str(o.get("name")) for o in self.objectives if isinstance(o, dict)]
        found: dict[str, str | int | float] = {
            name: ", ".join(map(str, part)) or "none" for name, part in parts.items()
        }
        return found | {"objectives": ", ".join(goals) or "none"}


def _begun(begins: re.Pattern[str], text: str) -> bool:
    return begins.match(text) is not None


def _written(file_format: str, instance: Instance) -> str:
    if not isinstance(instance, ProblemInstance) or instance.format != file_format:
        raise InstanceError(
            f"an instance of kind {instance.kind!r} is no {file_format} file; `flowlex export` writes its program"
        )
    return instance.text


def _parsed(file_format: Any, text: str, name: str) -> Instance:
    return ProblemInstance(name=name, format=file_format, text=text)


for _format, _begins in (("mps", _MPS), ("lp", _LP)):
    register_text_format(
        TextFormat(
            sniff=partial(_begun, _begins),
            parse=partial(_parsed, _format),
            endings=(f".{_format}",),
            write=partial(_written, _format),
        )
    )
