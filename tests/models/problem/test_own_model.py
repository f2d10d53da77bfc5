"""A model of one's own is changed like those of the families: changes are checked, applied and kept as documents."""

from collections.abc import Iterator
from typing import Any

import pytest

import flowlex as fx
from flowlex.models.models_by_kind import MODELS


@pytest.fixture
def model() -> Iterator[Any]:
    """Two lots of bread and cake fill an oven of 5: bread 4, cake 1."""

    class LotData(fx.Instance):
        """How many of each thing fit."""

        most: dict[str, int]

    class Lots(fx.Model):
        """What is baked?"""

        kind = "lots-of-a-test"
        data: LotData

        def state(self, p: fx.Problem) -> None:
            x = p.variables("x", item=list(self.data.most), upper=self.data.most, integer=True)
            p.constrain("oven", x.sum() <= 5)
            p.maximize("worth", 3 * x.sel(item="bread") + 2 * x.sel(item="cake"))

    yield Lots(LotData(name="two", most={"bread": 4, "cake": 4}))
    MODELS.pop("lots-of-a-test")
    fx.Instance.registry.pop("lots-of-a-test")


def test_changes_are_solved_proven_and_read_back(model: Any) -> None:
    x, changed = model["x"], {}
    changed[14] = model
    changed[12] = model.with_fixed(x.sel(item="bread"), 2)
    changed[13] = model.with_bounds(x, upper=3)
    changed[18] = model.without("oven").with_constraint("bread", x.sel(item="bread") <= 3.5).relaxed()
    more = model.with_variable("more", upper=2, integer=True)
    changed[16] = more.with_cost("worth", more["more"])
    for best, each in changed.items():
        s = each.solve()
        assert (float(s.objective), s.certificate.claim) == (best + (0.5 if best == 18 else 0), "optimal")
        assert fx.verify(s.to_dict(), model.data).ok
        assert model.with_changes(each.changes).solve().objective == s.objective
    assert model.solve().objective == 14


@pytest.mark.parametrize(
    "change",
    [
        lambda m, x: m.with_fixed(x, "many"),
        lambda m, x: m.with_fixed(x, 9),
        lambda m, x: m.with_fixed(x.sum(), 1),
        lambda m, x: m.with_bounds(3, upper=1),
        lambda m, x: m.with_bounds(x, lower=2, upper=1),
        lambda m, x: m.with_variable("x", upper=1),
        lambda m, x: m.with_variable("y", upper="a"),
        lambda m, x: m.relaxed("z"),
        lambda m, x: m.relaxed(3),
        lambda m, x: m.with_changes({"version": 1, "changes": [{"change": "odd"}]}),
    ],
)
def test_wrong_changes_are_errors_on_purpose(model: Any, change: Any) -> None:
    with pytest.raises(fx.FlowlexError):
        change(model, model["x"])
