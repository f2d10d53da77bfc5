"""Example instance files, small enough to read: ``read_instance(library()["gpu-testbed"])``."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from flowlex.instances.files import write_instance
from flowlex.instances.generators import generate

__all__ = ["RECIPES", "library", "write_library"]

_ENDINGS = (".json", ".json.gz", ".min", ".min.gz")

#: Generator, seed and parameters of each file; ``write_library`` regenerates the files.
RECIPES: Mapping[str, tuple[str, int, Mapping[str, Any]]] = {
    "gpu-figure1.json": ("gpu-figure1", 0, {}),
    "gpu-figure4.json": ("gpu-figure4", 4, {}),
    "gpu-testbed.json": ("gpu-testbed", 1, {}),
    "jit-figure4.json": ("jit-figure4", 0, {}),
    "jit-vgg16-10.json.gz": ("jit-cluster", 1, {"jobs": 10, "mix": "VGG16"}),
    "load-inference.json.gz": ("inference-cluster", 1, {}),
    "pods-testbed.json": ("kubeflow-testbed", 0, {}),
    "network-random.min.gz": ("network-random", 3, {"nodes": 12, "arcs": 40, "lower": 0.3, "unbounded": 0.1}),
}


def library() -> dict[str, Path]:
    """Return the example files by name (without ending), sorted."""
    folder = Path(str(files("flowlex.instances.library")))
    found = [path for path in folder.iterdir() if path.name.endswith(_ENDINGS)]
    return {path.name.partition(".")[0]: path for path in sorted(found)}


def write_library(folder: str | Path) -> None:
    """Regenerate all example files in a folder; use ``instances/library`` to update the shipped ones."""
    for name, (generator, seed, parameters) in RECIPES.items():
        write_instance(generate(generator, seed=seed, **parameters), Path(folder) / name)
