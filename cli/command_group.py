"""The group of all commands: help by task, one message per error, and commands imported when called."""

from __future__ import annotations

import importlib
import importlib.util
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from flowlex.cli.console_output import complain, printable
from flowlex.errors import FlowlexError
from flowlex.instances.named_modules import MODELS_VARIABLE
from flowlex.instances.registered_systems import registered


@dataclass(frozen=True)
class Lazy:
    """A command whose module is imported only when it is called."""

    # module, attribute: the function, or the `typer.Typer` with sub-commands
    module: str
    attribute: str
    help: str  # the line in ``flowlex --help``
    extra: str = ""  # the extra with the dependencies that it needs to run (not for its help), if any
    task: str = ""  # the section of ``flowlex --help``, for commands that `TASKS` does not name

    def present(self) -> bool:
        """Return whether the module is installed."""
        return importlib.util.find_spec(self.module) is not None

    def load(self, name: str) -> Any:
        """Import it as a command."""
        target = getattr(importlib.import_module(self.module), self.attribute)
        if isinstance(target, typer.Typer):
            command: Any = typer.main.get_command(target)
        else:
            single = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
            single.command(name)(target)
            command = typer.main.get_command(single)
        command.name = name
        return command


LAZY: dict[str, Lazy] = {
    "generate": Lazy("flowlex.cli.generate", "generate", "Make an instance file from a seed."),
    "show": Lazy(
        "flowlex.cli.show_instance",
        "show",
        "Print what an instance holds, the options of its model and the sizes of the formulation.",
    ),
    "solve": Lazy("flowlex.cli.solve", "solve", "Solve instance files to certified answers."),
    "cut": Lazy("flowlex.cli.cluster_parts", "cut", "Cut the cluster of a flow-scheduling instance into parts."),
    "join": Lazy(
        "flowlex.cli.cluster_parts", "join", "Join solutions of parts of a cluster; prove what the cut costs at most."
    ),
    "verify": Lazy("flowlex.cli.verify", "verify", "Prove or refuse solution files from their instances alone."),
    "export": Lazy(
        "flowlex.cli.export", "export", "Write the linear or integer program of an instance, for any solver."
    ),
    "plot": Lazy(
        "flowlex.cli.plot",
        "plot",
        "Solve an instance and draw the answer; exit code 1 when there is no answer to draw.",
    ),
    "schema": Lazy(
        "flowlex.cli.file_formats_and_examples",
        "schema",
        "Print the JSON Schema of a kind of instance file, of solution files (KIND: solution), or of files of changes.",
    ),
    "library": Lazy(
        "flowlex.cli.file_formats_and_examples",
        "library",
        "List the instance files that are shipped, with the paths to give to other commands.",
    ),
    "example": Lazy(
        "flowlex.cli.file_formats_and_examples",
        "example",
        "Print a small instance file of a kind, to change into one of your own.",
    ),
    "import": Lazy("flowlex.cli.import_instances", "app", "Turn public traces into instance files."),
    "tu": Lazy(
        "flowlex.cli.total_unimodularity", "tu", "Is a constraint matrix totally unimodular? With a proof either way."
    ),
    "integers": Lazy("flowlex.cli.implied_integers", "integers", "Which integer declarations can be dropped?"),
    "claims": Lazy("flowlex.cli.claims", "claims", "Check the published claims again."),
    "study": Lazy(
        "flowlex.cli.parameter_study", "study", "Solve files under all combinations of options, into one table."
    ),
    "options": Lazy(
        "flowlex.cli.model_options", "options", "List the options of a kind of problem, with their meaning."
    ),
    "warm-up": Lazy(
        "flowlex.cli.warm_up", "warm_up", "Compile the numerical loops now, so that the first use need not wait."
    ),
}


def lazy_commands() -> dict[str, Lazy]:
    """Return all commands, including those that systems register."""
    return LAZY | {name: Lazy(**what) for name, what in registered("COMMANDS").items()}


def _called(name: str) -> Lazy | None:
    """Return a command by name; systems are asked only for what is not ours."""
    return LAZY.get(name) or lazy_commands().get(name)


def _tasks() -> dict[str, tuple[str, ...]]:
    """Commands by task, those of systems after ours."""
    found = dict(TASKS)
    for name, lazy in lazy_commands().items():
        if lazy.task:
            found[lazy.task] = (*found.get(lazy.task, ()), name)
    return found


#: Our own commands by task, in the order of ``flowlex --help``.
TASKS: dict[str, tuple[str, ...]] = {
    "Make and import instances": ("generate", "example", "import", "library", "schema"),
    "Solve": ("solve", "study", "options", "cut", "join"),
    "Look": ("show", "plot", "export"),
    "Check": ("verify", "tu", "integers", "claims"),
    "Simulate": (),
    "Serve": ("warm-up",),
}


class FlowlexGroup(TyperGroup):
    """Imports the command that is called, and turns errors that a user can fix into one message and exit code 2."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take ``--models FILE`` out, wherever it stands: models of one's own, for this run and its workers."""
        while "--models" in args:
            place = args.index("--models")
            if place + 1 == len(args):
                raise typer.BadParameter("name a Python file with models", param_hint="--models")
            path = Path(args[place + 1]).resolve()
            if not path.is_file():
                raise typer.BadParameter(f"{path} does not exist", param_hint="--models")
            before = os.environ.get(MODELS_VARIABLE)
            os.environ[MODELS_VARIABLE] = str(path) if not before else f"{before}{os.pathsep}{path}"
            args = [*args[:place], *args[place + 2 :]]
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: Any) -> list[str]:
        """All commands, by task."""
        names = [*super().list_commands(ctx), *(name for name, lazy in lazy_commands().items() if lazy.present())]
        order = [name for task in _tasks().values() for name in task]
        return sorted(names, key=lambda name: order.index(name) if name in order else len(order))

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write a section of the help for each task."""
        names = self.list_commands(ctx)
        other = [name for name in names if not any(name in task for task in _tasks().values())]
        limit = formatter.width - 6 - max(map(len, names))
        for title, members in {**_tasks(), "Other": tuple(other)}.items():
            rows = [(name, self.get_command(ctx, name).get_short_help_str(limit)) for name in members if name in names]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows, col_max=limit)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Look a command up; a lazy command is represented by a stand-in with its help line."""
        lazy = _called(cmd_name)
        if lazy is not None and lazy.present():
            return TyperCommand(cmd_name, help=lazy.help)
        return super().get_command(ctx, cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Find the command to run and import it; the error for an unknown one names the nearest."""
        if args and _called(args[0]) is None:
            self.commands = {name: TyperCommand(name) for name in self.list_commands(ctx)}
        name, command, rest = super().resolve_command(ctx, args)
        if name is not None and command is not None and (lazy := _called(name)) is not None:
            command = lazy.load(name)
        return name, command, rest

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise  # the reader of a pipe has ended; the command-line library exits quietly
        except typer.BadParameter as error:
            error.message = printable(error.message)
            raise
        except ModuleNotFoundError as error:
            lazy = _called(ctx.invoked_subcommand or "")
            if (error.name or "").startswith("flowlex") or lazy is None or not lazy.extra:
                raise
            package = f"pip install 'flowlex[{lazy.extra}]'"
            complain(f"'{ctx.invoked_subcommand}' needs {error.name}; install it with: {package}")
            raise typer.Exit(2) from error
        except Exception as error:
            message = explanation(error)
            if message is None:
                raise
            complain(message)
            raise typer.Exit(2) from error


def explanation(error: Exception) -> str | None:
    """The message for an error that a user can fix; None for a defect of the program."""
    if isinstance(error, FlowlexError):
        return str(error)
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename is not None else ""
        return f"{where}{error.strerror or error}"
    if isinstance(error, MemoryError):
        return "not enough memory; try a smaller instance"
    return None
