"""Run the documentation: code blocks in order, the gallery, a build without warnings and without external resources."""

import os
import re
import shutil
import subprocess
import sys
import types
import warnings
from contextlib import redirect_stdout
from io import StringIO

import pandas as pd
import pytest

import flowlex as fx
from flowlex import generate, model_for
from tests.documents import ROOT, SOURCE, blocks, lines, public_traces
from tests.site_in_browser import broken_links, stumbles

pytest.importorskip("sphinx", reason="the extra `docs` is not installed")
DOCS = ROOT / "docs"
OWN_TESTS = ("reuse-a-model", "scheduler-service", "extend")
EXTENDING = (DOCS / "howto" / "extend.md").read_text()
PAGES = [
    *(DOCS / f"{name}.md" for name in ("installation", "index", "problems")),
    # The file of `reuse-a-model` is written and run word for word in tests/test_readme.py, and the processes of
    # `scheduler-service` in tests/systems/scheduler/test_processes.py; the changes of `extend` have a test below.
    *sorted(set((DOCS / "howto").glob("*.md")) - {DOCS / "howto" / f"{n}.md" for n in OWN_TESTS}),
]
SHOWN = """
from flowlex.instances import read_instance
for name, options in (("testbed", {"policy": "FSR"}), ("transfers", {"load": "job"})):
    print(model_for(read_instance(f"{name}.json"), **options).to_latex())
"""
#: Problems of one's own, a page each.
TEXTBOOK = sorted((DOCS / "gallery").glob("*.md"))
#: Places in a page with an address that a browser would fetch.
ADDRESS = r"""\s*=\s*["'](?:https?:)?//"""
FETCHED = re.compile(rf"src{ADDRESS}|srcset{ADDRESS}|<link[^>]+href{ADDRESS}|@import|url\([\s\"']*(?:https?:)?//")


@pytest.mark.rare
@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_every_block_of_a_page_runs_in_order(page, shell, monkeypatch):
    public_traces(shell.folder)
    module = types.ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)
    for language, text in blocks(page.read_text()):
        if language == "console":
            for line in lines(text):
                if not line.startswith("flowlex solve --from-telemetry"):  # tests/systems/telemetry/test_documents.py
                    shell(line)
        elif language == "python":
            with monkeypatch.context() as patch, redirect_stdout(StringIO()):
                patch.chdir(shell.folder)
                exec(compile(text, page.name, "exec"), vars(module))


def changed_files(section: str) -> dict[str, str]:
    """The files that a section changes, by path in the package, after its changes."""
    changed: dict[str, str] = {}
    for head, *hunks in (text.split("@@\n") for language, text in blocks(section) if language == "diff"):
        path = head.split()[1]
        for hunk in hunks:
            old, new = ("".join(line[1:] for line in hunk.splitlines(True) if line[0] != sign) for sign in "+-")
            source = changed.get(path) or (SOURCE / path).read_text()
            assert source.count(old) == 1, f"docs/howto/extend.md: {path} has no such lines any more:\n{old}"
            changed[path] = source.replace(old, new)
    return changed


@pytest.mark.parametrize("section", EXTENDING.split("\n## ")[1:])
def test_what_the_page_adds_to_the_package_takes_three_files(section):
    assert len(changed_files(section)) == (3 if "in the package" in section.splitlines()[0] else 0)


@pytest.mark.rare
@pytest.mark.timeout(600)
def test_what_the_page_adds_to_the_package_is_proven(shell):
    """In a copy of the package: the changes of the page, its commands, and options that do not exist."""
    copy = shell.folder.parent / "site" / "flowlex"
    shutil.copytree(SOURCE, copy)
    for section in EXTENDING.split("\n## ")[1:]:
        for path, text in changed_files(section).items():
            (copy / path).write_text(text)
        for line in (line for language, text in blocks(section) if language == "console" for line in lines(text)):
            assert "optimal, proven exactly" in shell(line) or "verify" not in line
    refused = "testbed.json --set policy=FSX", "tonight.json --set preset=full", "transfers.json --set load=machine"
    for what, known in zip(refused, ("'FSU' or 'FSR'", "'headroom'", "'job'"), strict=True):
        said = shell(f"flowlex solve {what} 2>&1 || true")
        assert "must be" in said and known in said, said
    code = "".join(text for language, text in blocks(EXTENDING) if language == "python")
    (shell.folder / "code.py").write_text(code + SHOWN)
    said = shell("python code.py")
    assert "fullest" in said and "level" in said


@pytest.mark.rare
def test_every_picture_of_the_gallery_is_drawn(shell):
    cells = [text for language, text in blocks((DOCS / "gallery.md").read_text()) if language == "code-cell"]
    figures = "(pyplot.figure(number) for number in pyplot.get_fignums())"
    drawn = f"\nprint(*(len(figure.axes[0].get_children()) for figure in {figures}))"
    alone = "from matplotlib import pyplot\npyplot.close('all')\n"
    (shell.folder / "code.py").write_text(alone + "".join(cells) + drawn + "\npyplot.close('all')")
    children = [int(count) for count in shell("python code.py").strip().splitlines()[-1].split()]
    assert len(children) == len(cells) - 1 and min(children) > 10  # an empty axes has ten


@pytest.mark.rare
@pytest.mark.parametrize("page", TEXTBOOK, ids=[page.stem for page in TEXTBOOK])
def test_every_textbook_problem_is_proven_drawn_changed_and_mutated(page, shell):
    cells = [text for language, text in blocks(page.read_text()) if language == "code-cell"]
    assert len(cells[1].split("p = fx.Problem")[1].split("return p")[0].splitlines()) <= 15  # of statement
    looked = (
        "\nassert s.certificate.claim == 'optimal' and s.certificate.ok and len(axes.get_children()) > 10"
        "\nassert p._repr_html_().count('begin{aligned}') == 1"
        "\nkilled = [r for r in report.results if r.fate == 'killed']"
        "\nassert len(killed) >= 6 and report.survivors\nprint('looked')"
    )
    (shell.folder / "code.py").write_text("".join(cells) + looked)
    assert shell("python code.py").endswith("looked\n")


@pytest.mark.rare
@pytest.mark.timeout(900)
def test_the_site_builds_without_warnings_and_reads_well_on_a_laptop_and_a_phone(tmp_path):
    built = tmp_path / "html"
    command = [sys.executable, "-m", "sphinx", "-b", "html", "-W", "--keep-going", "-q", "-d", tmp_path / "trees"]
    environment = os.environ | {"FLOWLEX_DOCS_NOTEBOOKS": "off"}
    done = subprocess.run([*command, DOCS, built], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    pages = sorted(built.rglob("*.html"))
    assert len(pages) > 40
    assert {page.name: found[0] for page in pages if (found := FETCHED.search(page.read_text()))} == {}
    mathematics = (built / "mathematics" / "gpu-assignment.html").read_text()
    assert mathematics.count("<math ") > 15 and "merror" not in mathematics
    assert broken_links(built) == []
    if chromium := shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome"):
        assert stumbles(built, chromium) == []
    else:
        warnings.warn("no Chromium on this machine: pages were not looked at in a browser", stacklevel=1)


#: Pages whose tables say in Python what one writes, in their last column.
SAID = ("state-your-own-problem", "coming-from-pulp", "coming-from-linopy", "coming-from-gurobipy", "own-rules")
#: What a piece of Python in a table begins with.
OURS = re.compile(r"(p|s|x|y|stock|start|load|fx|with\w*|without|relaxed)\b[^.(\[]*[.(\[]")


def in_tables(page: str) -> list[str]:
    """Python in the last column of the tables of a page, without pieces that hold an ellipsis."""
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    spans = [span for row in rows for span in re.findall(r"`([^`]+)`", row.rstrip("| ").rpartition(" | ")[2])]
    return [span for span in spans if "..." not in span and OURS.match(span)]


def own_problem() -> dict[str, object]:
    """The names that the tables about problems use."""
    p = fx.Problem("shifts")
    W, S = ["Ann", "Bob"], ["Mon", "Tue", "Wed"]
    index = pd.MultiIndex.from_product([W, S], names=["worker", "shift"])
    table = pd.DataFrame({"job": ["a", "a", "b"] * 2, "node": ["n", "m", "m"] * 2}, index=index)
    x, y = p.variables("x", over=table, binary=True), p.variables("y", binary=True)
    wage, demand = pd.Series([2, 3], pd.Index(W, name="worker")), pd.Series(1, pd.Index(S, name="shift"))
    stock, start = p.variables("stock", week=[1, 2]), p.variables("start", job=["a", "b"])
    load = p.variables("load", machine=["m1", "m2"])
    p.constrain("cover", x.sum(by="shift") >= demand)
    p.constrain("rest", x.rolling(shift=2).sum() <= 2)
    p.minimize("first", (x * wage).sum())
    s = earlier_solution = p.relaxed().solve()
    machine_of_task = pd.Series({"t1": "m2", "t2": "m1"}, name="machine_of_task").rename_axis("task")
    pairs = pd.DataFrame({"first": ["a"], "second": ["b"]})
    return {
        **locals(),
        "fx": fx,
        "workers": W,
        "shifts": S,
        "first": 1,
        "d": demand,
        "c": wage,
        "w": "Ann",
        "m": p.to_pulp(),
    }


@pytest.mark.parametrize("page", SAID)
def test_what_a_table_says_in_python_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = in_tables((DOCS / "howto" / f"{page}.md").read_text())
    assert len(said) > 3
    for span in said:
        code = re.sub(r'p\.(constrain|variables)\("', r'p.\1("new_', span)  # names that the problem has already
        if page == "own-rules":
            model = model_for(generate("gpu-testbed", seed=1, running=0), policy="FSP")
            x = model.variables["x"]
            row = "share" if span.startswith("without") else "few"
            names, code = {"model": model, "x": x, "name": row, "rule": x.sum() <= 3}, f"model.{span}"
        else:
            names = own_problem()
        try:
            exec(code, names)
        except Exception as error:
            raise AssertionError(f"{page}: {span}: {error}") from error
