"""The style of all plots: colours, sizes that follow the data, legends beside it, titles that say what is shown.

The palette is Okabe and Ito's ("Color universal design", 2008): distinct with every kind of colour blindness.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from flowlex.formulations.program_arrays import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

BLUE, ORANGE, GREEN, PURPLE = "#0072B2", "#E69F00", "#009E73", "#CC79A7"
SKY, RED, YELLOW, BLACK = "#56B4E9", "#D55E00", "#F0E442", "#000000"
GREY, LIGHT = "#8C8C8C", "#E6E6E6"
#: In an order in which neighbours differ in lightness as well.
PALETTE = (BLUE, ORANGE, GREEN, SKY, PURPLE, YELLOW, RED, BLACK)
#: File formats by the ending of a picture's name.
FORMATS = ("png", "svg", "pdf")
#: Most names along an axis; of more, every n-th is shown.
MOST_NAMES = 40
_NAMES_PER_INCH, _LETTERS_PER_INCH = 5, 7
#: Most bars beside each other; more are drawn as lines or merged.
MOST_BARS = 120
#: Inches: no picture grows beyond what a screen or page can show.
_SMALLEST, _LARGEST = (4.0, 2.5), (11.0, 14.0)


def axes_for(ax: Axes | None, width: float, height: float) -> Axes:
    """The given axes, or new ones of this size in inches, within limits.

    Examples
    --------
    >>> tuple(map(float, axes_for(None, 8, 400).figure.get_size_inches()))
    (8.0, 14.0)
    """
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    least, most = _SMALLEST, _LARGEST
    size = (min(max(width, least[0]), most[0]), min(max(height, least[1]), most[1]))
    return plt.subplots(figsize=size, layout="constrained")[1]


def colours(count: int) -> list[str]:
    """A list of ``count`` colours, which repeat after eight."""
    return list(islice(cycle(PALETTE), count))


def legend(axes: Axes, *, inches: float = 0.1, **more: Any) -> Axes:
    """Put a legend ``inches`` right of the axes, if anything has a label."""
    from matplotlib.transforms import ScaledTranslation

    if "handles" in more or axes.get_legend_handles_labels()[0]:
        figure = axes.get_figure(root=True)
        assert figure is not None  # axes are always drawn on one
        more |= {"loc": "upper left", "borderaxespad": 0.0, "frameon": False, "fontsize": 8}
        right = axes.transAxes + ScaledTranslation(inches, 0, figure.dpi_scale_trans)
        axes.legend(bbox_to_anchor=(1.0, 1.0), bbox_transform=right, **more)
        if figure.get_layout_engine() is None:  # so that it covers no neighbour
            figure.set_layout_engine("tight")
    return axes


def name_places(axis: Axis, names: Sequence[str], most: int = MOST_NAMES) -> None:
    """Write names at the positions 0, 1, ... of an axis: all if that is readable, else every n-th."""
    box = axis.axes.get_window_extent()
    inches = (box.width if axis is axis.axes.xaxis else box.height) / axis.axes.figure.dpi
    every = max(1, -(-len(names) // max(2, min(most, int(_NAMES_PER_INCH * inches)))))
    shown = list(range(0, len(names), every))
    axis.set_ticks(shown, labels=[str(names[k]) for k in shown], fontsize=9 if len(shown) <= 15 else 7)
    if axis is axis.axes.xaxis and sum(len(str(names[k])) for k in shown) > _LETTERS_PER_INCH * inches:
        axis.set_tick_params(rotation=60)
        for label in axis.get_ticklabels():
            label.set(ha="right", rotation_mode="anchor")


def count_ticks(axis: Axis) -> None:
    """Ticks at integers only, for an axis that counts."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(integer=True))


def moved_apart(points: ArrayLike, least: float) -> Floats:
    """Push points (n, 2) apart until any two are at least about ``least`` apart.

    Examples
    --------
    >>> moved_apart([[0.0, 0.0], [0.0, 0.5], [3.0, 0.0]], 1.0).tolist()
    [[0.0, -0.25], [0.0, 0.75], [3.0, 0.0]]
    """
    places = np.array(points, float)
    for _ in range(200):
        gap = places[:, None] - places
        distance = np.hypot(gap[..., 0], gap[..., 1])
        near = np.triu(distance < least, 1)
        if not near.any():
            break
        one, two = np.nonzero(near)
        away = np.where(distance[one, two, None] > 0, gap[one, two], (1e-9, 0.0))
        away /= np.hypot(away[:, 0], away[:, 1])[:, None]
        step = away * ((least - distance[one, two]) / 2)[:, None]
        np.add.at(places, one, step)
        np.add.at(places, two, -step)
    return places


def part(shown: int, total: int, what: str, which: str) -> str:
    """Title text of a plot that may show only a part of the data.

    Examples
    --------
    >>> part(40, 500, "machines", "the fullest"), part(5, 5, "machines", "the fullest")
    ('40 of 500 machines, the fullest', '5 machines')
    """
    return f"{total} {what}" if shown == total else f"{shown} of {total} {what}, {which}"


@contextmanager
def quiet_backend() -> Iterator[None]:
    """Draw without a screen and with reproducible bytes; close all figures made inside."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    before = set(plt.get_fignums())
    with mpl.rc_context({"svg.hashsalt": "flowlex", "svg.fonttype": "none"}):
        try:
            yield
        finally:
            for number in set(plt.get_fignums()) - before:
                plt.close(number)


def picture_bytes(axes: Axes, suffix: str) -> bytes:
    """The figure of these axes as a PNG, SVG or PDF file without a timestamp."""
    figure = axes.get_figure(root=True)
    assert figure is not None  # axes are always drawn on one
    buffer = io.BytesIO()
    metadata: dict[str, dict[str, Any]] = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
    figure.savefig(buffer, format=suffix, bbox_inches="tight", dpi=150, metadata=metadata[suffix])
    return buffer.getvalue()
