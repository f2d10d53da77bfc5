"""The group of all commands: errors become one message, and commands of other rooms load when called."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from dataclasses import dataclass
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from flowlex.cli.output import complain

__all__ = ["LAZY", "FlowlexGroup", "Lazy"]


@dataclass(frozen=True)
class Lazy:
    """A command whose module is imported only when it is called.

    Attributes
    ----------
    module, attribute
        Where it lives: a function, or a `typer.Typer` with sub-commands.
    help
        The line in ``flowlex --help``.
    extra
        The extra of the package that it needs, if any.
    """

    module: str
    attribute: str
    help: str
    extra: str = ""

    def present(self) -> bool:
        """Whether this installation has it."""
        return importlib.util.find_spec(self.module) is not None

    def load(self, name: str) -> Any:
        """Import it as a command."""
        try:
            target = getattr(importlib.import_module(self.module), self.attribute)
        except ModuleNotFoundError as error:
            if (error.name or "").startswith("flowlex") or not self.extra:
                raise
            complain(f"'{name}' needs {error.name}; install it with: pip install 'flowlex[{self.extra}]'")
            raise typer.Exit(2) from error
        if isinstance(target, typer.Typer):
            command: Any = typer.main.get_command(target)
        else:
            single = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
            single.command(name)(target)
            command = typer.main.get_command(single)
        command.name = name
        return command


LAZY: dict[str, Lazy] = {
    "import": Lazy("flowlex.cli.importing", "app", "Turn public traces into instance files."),
    "tu": Lazy("flowlex.cli.tu", "tu", "Is a constraint matrix totally unimodular? With a proof either way."),
    "integers": Lazy("flowlex.cli.integers", "integers", "Which integer declarations of a model can be dropped?"),
    "claims": Lazy("flowlex.cli.claims", "claims", "Check the published claims again."),
    "replay": Lazy("flowlex.cli.replay", "replay", "Feed an event log to a live scheduler, step by step."),
    "flow": Lazy("flowlex.cli.flow", "flow", "Solve a network again and again while DIMACS lines change it."),
    "explain": Lazy("flowlex.cli.explain", "explain", "Why does a task of a saved scheduler wait, and what places it?"),
    "run-partition": Lazy(
        "flowlex.cli.partition", "run_partition", "Partition items, run a program on each share, time it."
    ),
    "simulate": Lazy("flowlex.cli.simulate", "simulate", "Let time pass: run scenarios of clusters and networks."),
    "reproduce": Lazy("flowlex.cli.reproduce", "reproduce", "Measure again what the papers state, beside theirs."),
    "options": Lazy(
        "flowlex.cli.model_options", "options", "List the options of a kind of problem, with their meaning."
    ),
    "warm-up": Lazy("flowlex.cli.warm_up", "warm_up", "Compile the numerical loops now, so that no first use waits."),
    "serve": Lazy("flowlex.cli.serve", "app", "Run a scheduler as a service.", "telemetry"),
    "telemetry": Lazy("flowlex.cli.telemetry", "app", "The node information service.", "telemetry"),
}


class FlowlexGroup(TyperGroup):
    """Adds the lazy commands, and turns errors that a person can mend into one message and exit code 2."""

    def list_commands(self, ctx: Any) -> list[str]:
        """All commands, the lazy ones last."""
        return [*super().list_commands(ctx), *(name for name, lazy in LAZY.items() if lazy.present())]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Look a command up; a lazy one is a stand-in that knows its help line."""
        if cmd_name in LAZY and LAZY[cmd_name].present():
            return TyperCommand(cmd_name, help=LAZY[cmd_name].help)
        return super().get_command(ctx, cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Find the command to run; now a lazy one is imported."""
        name, command, rest = super().resolve_command(ctx, args)
        if name in LAZY and command is not None:
            command = LAZY[name].load(name)
        return name, command, rest

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise  # the reader of a pipe went away; the command-line library ends quietly
        except Exception as error:
            message = explanation(error)
            if message is None:
                raise
            complain(message)
            raise typer.Exit(2) from error


#: Errors whose message says what to mend; what is not imported has raised nothing.
_MENDED = (
    ("flowlex.instances.errors", "InstanceError"),
    ("flowlex.models.answer", "ModelError"),
    ("flowlex.formulations.outcome", "EngineError"),
    ("flowlex.validation.certificates.certificate", "CertificateError"),
    ("flowlex.simulation.kernel", "SimulationError"),
)


def explanation(error: Exception) -> str | None:
    """Say in one message what a person can mend; None for a defect of the program."""
    imported = (getattr(sys.modules.get(module), name, None) for module, name in _MENDED)
    if isinstance(error, tuple(kind for kind in imported if kind is not None)):
        return str(error)
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename is not None else ""
        return f"{where}{error.strerror or error}"
    if isinstance(error, MemoryError):
        return "not enough memory; try a smaller instance"
    return None
