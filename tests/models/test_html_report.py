"""A solution as one page."""

from html.parser import HTMLParser

import pytest

from flowlex import generate, model_for
from flowlex.instances.files import instance_from_document
from flowlex.models import html_report
from flowlex.models.solution import ModelError


class Reader(HTMLParser):
    """Collects unclosed tags, texts of cells, and addresses that a browser would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.cells: list[str] = []
        self.fetched: list[str] = []

    def handle_starttag(self, tag, attrs):
        if tag not in ("meta", "input", "path", "use", "br", "image"):
            self.open.append(tag)
        self.fetched += [value for name, value in attrs if name in ("src", "href", "xlink:href") and value[:1] != "#"]

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if self.open and self.open[-1] == tag:
            self.open.pop()

    def handle_endtag(self, tag):
        if self.open and self.open[-1] == tag:
            self.open.pop()

    def handle_data(self, data):
        if self.open and self.open[-1] in ("td", "th"):
            self.cells.append(data)


@pytest.mark.parametrize("generator", ["gpu-figure4", "flow-testbed", "kubeflow-testbed", "jit-figure4", "gavel-like"])
def test_a_page_is_whole_and_fetches_nothing(generator: str) -> None:
    solution = model_for(generate(generator, seed=1)).solve()
    text = solution.to_html()
    reader = Reader()
    reader.feed(text)
    assert reader.open == [] and reader.fetched == []
    assert "<svg" in text and "http://" not in text.replace("http://www.w3.org", "")
    frame = solution.to_frame()
    names = frame.index if frame.index.name else frame.iloc[:, 0]
    assert {str(name) for name in names} <= set(reader.cells)
    assert text == solution.to_html()


def test_names_cannot_become_markup() -> None:
    document = generate("gpu-figure1").model_dump(mode="json")
    document["name"] = "<script>alert(1)</script>"
    text = model_for(instance_from_document(document)).solve("network").to_html()
    assert "<script>alert" not in text and "&lt;script&gt;alert" in text


def test_a_long_table_is_cut_and_says_so(monkeypatch) -> None:
    monkeypatch.setattr(html_report, "MOST_ROWS", 2)
    text = model_for(generate("gpu-figure4")).solve("network").to_html()
    assert "The first 2 of " in text


def test_no_answer_no_page() -> None:
    document = generate("network-random", seed=1).model_dump(mode="json")
    document["upper"] = [0] * len(document["upper"])
    document["lower"] = [0] * len(document["lower"])
    with pytest.raises(ModelError, match="there is no answer"):
        model_for(instance_from_document(document)).solve("network").to_html()
