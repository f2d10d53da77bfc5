"""Run the documentation: code blocks in order, the gallery, a build without warnings and without external resources."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest

from tests.documents import ROOT, blocks, lines, public_traces

pytest.importorskip("sphinx", reason="the extra `docs` is not installed")
DOCS = ROOT / "docs"
OWN_TESTS = ("reuse-a-model", "scheduler-service")
PAGES = [
    *(DOCS / f"{name}.md" for name in ("installation", "index", "problems")),
    # The file of `reuse-a-model` is written and run word for word in tests/test_readme.py, and the processes of
    # `scheduler-service` in tests/systems/scheduler/test_processes.py.
    *sorted(set((DOCS / "howto").glob("*.md")) - {DOCS / "howto" / f"{n}.md" for n in OWN_TESTS}),
]
#: Problems of one's own, a page each.
TEXTBOOK = sorted((DOCS / "gallery").glob("*.md"))
#: Places in a page with an address that a browser would fetch.
ADDRESS = r"""\s*=\s*["'](?:https?:)?//"""
FETCHED = re.compile(rf"src{ADDRESS}|srcset{ADDRESS}|<link[^>]+href{ADDRESS}|@import|url\([\s\"']*(?:https?:)?//")


def test_pages_begin_with_what_one_can_do_after_them_and_notebooks_with_a_question():
    for page in sorted((DOCS / "howto").glob("[!i]*.md")):
        title, first = page.read_text().split("\n\n")[:2]
        assert title.startswith("# ") and first.startswith("After this page you can"), page.stem
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        cells = ["".join(cell["source"]) for cell in json.loads(path.read_text())["cells"]]
        question = re.match(r"# .+\n\n\*[^*]+\?\*|# .+\?", cells[0])
        assert question and cells[-1].startswith("## Try next"), path.stem


@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_every_block_of_a_page_runs_in_order(page, shell):
    public_traces(shell.folder)
    code = []
    for language, text in blocks(page.read_text()):
        if language == "console":
            for line in lines(text):
                if not line.startswith("flowlex solve --from-telemetry"):  # tests/telemetry/test_documents.py
                    shell(line)
        elif language == "python":
            code.append(text)
    if code:
        (shell.folder / "code.py").write_text("\n".join(code))
        assert shell("python code.py")


def test_every_picture_of_the_gallery_is_drawn(shell):
    cells = [text for language, text in blocks((DOCS / "gallery.md").read_text()) if language == "code-cell"]
    figures = "(pyplot.figure(number) for number in pyplot.get_fignums())"
    drawn = f"\nprint(*(len(figure.axes[0].get_children()) for figure in {figures}))"
    alone = "from matplotlib import pyplot\npyplot.close('all')\n"
    (shell.folder / "code.py").write_text(alone + "".join(cells) + drawn + "\npyplot.close('all')")
    children = [int(count) for count in shell("python code.py").split()]
    assert len(children) == len(cells) - 1 and min(children) > 10  # an empty axes has ten


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
def test_the_site_builds_without_warnings_and_fetches_nothing(tmp_path):
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
