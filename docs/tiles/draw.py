"""Draw the pictures of the seven problems on the front page: `python docs/tiles/draw.py`."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from flowlex import generate, model_for

#: By the name of the picture: a generator and its parameters.
PROBLEMS = {
    "gpu-assignment": ("gpu-testbed", {"seed": 1}),
    "jit-bandwidth": ("jit-figure4", {}),
    "flow-scheduling": ("flow-testbed", {}),
    "load-partition": ("inference-cluster", {}),
    "pod-placement": ("kubeflow-testbed", {"pods": 8}),
    "allocation": ("gavel-like", {"jobs": 8}),
    "min-cost-flow": ("network-random", {"nodes": 12, "arcs": 30}),
}

for name, (generator, parameters) in PROBLEMS.items():
    figure = model_for(generate(generator, **parameters)).solve().plot().figure
    figure.set_size_inches(4.2, 3.0)
    for axes in figure.axes:
        axes.set_title("")
        if legend := axes.get_legend():
            legend.remove()
        if name == "gpu-assignment":  # names of tasks, too small here
            for text in axes.texts:
                text.remove()
    figure.savefig(Path(__file__).with_name(f"{name}.png"), dpi=90, bbox_inches="tight")
