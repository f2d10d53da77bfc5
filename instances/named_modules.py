"""Python files with models of one's own that ``flowlex --models`` names, imported in every process of a run."""

from __future__ import annotations

import importlib.util
import os
import sys
from functools import cache

from flowlex.instances.input_errors import InstanceError

#: Environment variable with these files, which workers inherit.
MODELS_VARIABLE = "FLOWLEX_MODELS"


@cache
def load_named_modules() -> None:
    """Import the files of models that ``flowlex --models`` names, in this process and in its workers.

    Raises `InstanceError`: a file cannot be imported; names it.
    """
    for number, path in enumerate(filter(None, os.environ.get(MODELS_VARIABLE, "").split(os.pathsep))):
        spec = importlib.util.spec_from_file_location(f"flowlex_models_{number}", path)
        try:
            if spec is None or spec.loader is None:
                raise ImportError("expected a Python file")
            module = importlib.util.module_from_spec(spec)
            sys.modules[spec.name] = module
            spec.loader.exec_module(module)
        except Exception as error:  # a user's module can raise anything
            raise InstanceError(f"models cannot be imported: {type(error).__name__}: {error}", path=path) from error
