"""Generate pages from the code before a build: models, file formats, commands, public names."""

from __future__ import annotations

import importlib
import inspect
import json
import re
import shutil
import sys
import typing
from pathlib import Path
from typing import Any

import typer
import typer.main
from pydantic import TypeAdapter
from typer.cli import get_docs_for_click

import flowlex
from flowlex.formulations.language.formulas import symbol_tex
from flowlex.instances import generate, json_schema, kinds
from flowlex.models.model_base import ModelError
from flowlex.models.model_options import options_of
from flowlex.models.registry import model_class, model_for
from flowlex.systems.scheduler.event_log import Event
from flowlex.validation.certificates.solution_schema import family_solution_schema, problem_solution_schema

ROOT = Path(__file__).resolve().parents[2]
#: Packages and modules whose ``__all__`` is public, with the titles of their pages.
PUBLIC = {
    "flowlex": "The package",
    "flowlex.instances": "Instances",
    "flowlex.models": "Models",
    "flowlex.formulations": "Formulations",
    "flowlex.testing": "Tests of formulations",
    "flowlex.systems.traces": "Public traces",
    "flowlex.validation.certificates": "Certificates",
    "flowlex.validation.unimodularity.check": "Total unimodularity",
    "flowlex.validation.unimodularity.implied_integers.search": "Integers that can be dropped",
}


def row(*cells: str) -> str:
    """Return a row of a Markdown table."""
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    """Return the lines of a Markdown table; no lines if there are no rows."""
    return ["", row(*head), row(*("---" for _ in head)), *(row(*cells) for cells in rows), ""] if rows else []


def mathematics(kind: str) -> str:
    """Return the page of a model: description, mathematics of its examples, and options."""
    cls = model_class(kind)
    description = inspect.cleandoc(cls.__doc__ or "").partition("\nParameters\n")[0].partition("\nNotes\n")[0]
    first = f"`{cls.__name__}` solves instances of kind `{kind}` ({{doc}}`/formats/{kind}`)."
    module = inspect.cleandoc(sys.modules[cls.__module__].__doc__ or "")
    lines = [f"# {cls.title}", "", first, "", module, "", description, ""]
    for caption, generator, chosen in cls.examples:
        made = model_for(generate(generator), **chosen)
        lines += [f"## {caption}", "", "$$", made.to_latex(), "$$", ""]
        said = [(f"`{name}`", block.words, block.dual) for name, block in made.problem.rows.items()]
        lines += table(("rows", "say", "their dual"), said)
        known = [(f"${symbol_tex(name, [])}$", words, unit) for name, (words, unit, _) in made.problem.symbols.items()]
        lines += table(("data", "stand for", "unit"), known)
    rows = [(f"`{option.name}`", option.values, option.default, option.says) for option in options_of(cls)]
    lines += ["## Options", *table(("option", "values", "default", "meaning"), rows)]
    return "\n".join(lines)


def fields(schema: dict[str, Any]) -> list[tuple[str, ...]]:
    """Return the table rows of a schema's fields."""
    needed = schema.get("required", [])
    rows = []
    for name, field in schema.get("properties", {}).items():
        given = "required" if name in needed else f"default `{json.dumps(field.get('default'))}`"
        rows.append((f"`{name}`", shape(field), given, limits(field) + field.get("description", "")))
    return rows


def shape(field: dict[str, Any]) -> str:
    """Return the type of a field as text; objects by their name."""
    if "$ref" in field:
        return field["$ref"].rsplit("/", 1)[1]
    if "const" in field:
        return json.dumps(field["const"])
    if "enum" in field:
        return ", ".join(map(json.dumps, field["enum"]))
    for key in ("anyOf", "allOf", "oneOf"):
        if key in field:
            return " or ".join(dict.fromkeys(shape(option) for option in field[key]))
    if field.get("type") == "array":
        return f"list of {shape(field.get('items', {}))}"
    extra = field.get("additionalProperties")
    if isinstance(extra, dict):
        return f"object: name to {shape(extra)}"
    return str(field.get("type", "any"))


def limits(field: dict[str, Any]) -> str:
    """Return the bounds of a number as text, empty if it has none."""
    signs = {"exclusiveMinimum": ">", "minimum": "at least", "exclusiveMaximum": "<", "maximum": "at most"}
    bounds = ", ".join(f"{sign} {field[key]}" for key, sign in signs.items() if key in field)
    return f"({bounds}) " if bounds else ""


def document(title: str, schema: dict[str, Any]) -> str:
    """Return the page of a file format with every field of every object."""
    lines = [f"# {title}", ""]
    parts = {"the document": schema, **schema.get("$defs", {})}
    for name, part in parts.items():
        lines += [f"## {name}" if part is schema else f"## `{name}`", ""]
        lines += ["```text", inspect.cleandoc(part["description"]), "```", ""] if part.get("description") else []
        lines += table(("field", "type", "given", "meaning"), fields(part))
    return "\n".join(lines)


def commands() -> dict[str, str]:
    """Return a page per command with the text of ``--help``."""
    from flowlex.cli.app import app
    from flowlex.cli.command_group import lazy_commands

    group = typer.main.get_command(app)
    context = typer.Context(group, info_name="flowlex")
    pages = {}
    for name in group.list_commands(context):  # type: ignore[attr-defined]
        command = lazy_commands()[name].load(name) if name in lazy_commands() else group.get_command(context, name)  # type: ignore[attr-defined]
        text = get_docs_for_click(obj=command, ctx=context, name=name, call_prefix="flowlex")
        pages[name] = re.sub(r"^(#+) `(.*?)`$", r"\1 \2", text, flags=re.MULTILINE)
    return pages


def reference(module: str, title: str) -> str:
    """Return the page of a package: every public name with its docstring."""
    package = importlib.import_module(module)
    names = sorted(name for name in package.__all__ if not name.startswith("__"))
    lines = [f"# {title}: `{module}`", "", inspect.cleandoc(package.__doc__ or ""), ""]
    for name in names:
        value = getattr(package, name)
        kind = "class" if inspect.isclass(value) else "function" if callable(value) else "data"
        member = "   :members:\n   :inherited-members: BaseModel\n" if kind == "class" and module == "flowlex" else ""
        index = "" if module == "flowlex" or name not in flowlex.__all__ else "   :no-index:\n"
        lines += [f"## `{name}`", "", "```{eval-rst}", f".. auto{kind}:: {module}.{name}\n{member}{index}```", ""]
    return "\n".join(lines)


def index(title: str, introduction: str, pages: typing.Iterable[str]) -> str:
    """Return a page with a table of contents of others."""
    return "\n".join([f"# {title}", "", introduction, "", "```{toctree}", ":maxdepth: 1", "", *pages, "```", ""])


def is_ours(kind: str) -> bool:
    """Whether a model of ours with mathematics of its own solves the kind (no scenario, no problem file)."""
    try:
        model = model_class(kind)
        return model.__module__.startswith("flowlex.") and hasattr(model, "examples")
    except ModelError:
        return False


def pages() -> dict[str, str]:
    """Return the text of every generated page by its path without suffix."""
    ours = [kind for kind in kinds() if is_ours(kind)]
    texts = {f"mathematics/{kind}": mathematics(kind) for kind in ours}
    texts["mathematics/index"] = index(
        "The models", "Each page is generated from the declaration that the code solves.", ours
    )
    texts |= {f"formats/{kind}": document(f"Instances: {kind}", json_schema(kind)) for kind in kinds()}
    texts["formats/solution"] = document("Solutions", family_solution_schema())
    texts["formats/problem-solution"] = document("Solutions of problems of one's own", problem_solution_schema())
    texts["formats/events"] = document("Event logs", TypeAdapter[Any](Event).json_schema())
    introduction = "Every field of every file. `flowlex schema KIND` prints the JSON Schema of instances and solutions."
    texts["formats/index"] = index("File formats", introduction, [*kinds(), "solution", "problem-solution", "events"])
    helps = commands()
    texts |= {f"commands/{name}": text for name, text in helps.items()}
    texts["commands/index"] = index("Commands", "The output of `flowlex COMMAND --help`.", helps)
    names = {module.replace(".", "-"): (module, title) for module, title in PUBLIC.items()}
    texts |= {f"reference/{name}": reference(*entry) for name, entry in names.items()}
    texts["reference/index"] = index("Public names", "The names that programs may rely on.", names)
    return texts


def write(app: Any) -> None:
    """Write the pages that changed, and copy notebooks, benchmarks and changelog into the site."""
    folder = Path(app.srcdir)
    for path, text in pages().items():
        target = folder / f"{path}.md"
        target.parent.mkdir(exist_ok=True)
        if not target.exists() or target.read_text() != text:
            target.write_text(text)
    tutorials = folder / "tutorials"
    tutorials.mkdir(exist_ok=True)
    notebooks = sorted((ROOT / "notebooks").glob("*.ipynb"))
    for notebook in notebooks:
        shutil.copy2(notebook, tutorials / notebook.name)
    introduction = "One notebook per problem, from an example solved by hand to the published scale; run at the build."
    (tutorials / "index.md").write_text(index("Tutorials", introduction, [notebook.stem for notebook in notebooks]))
    for name, source in {"benchmarks": "benchmarks/README.md", "changelog": "CHANGELOG.md"}.items():
        shutil.copy2(ROOT / source, folder / f"{name}.md")


def resolve_unlinked(app: Any, env: Any, node: Any, content: Any) -> Any:
    """Show a name in backticks without a link if it has no page; other missing references remain warnings."""
    return content if node["reftype"] == "obj" else None


def setup(app: Any) -> dict[str, bool]:
    """Connect the handlers: write pages before a build, resolve names without a page."""
    app.connect("builder-inited", write)
    app.connect("missing-reference", resolve_unlinked)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
