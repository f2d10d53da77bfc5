"""Nothing edits an instance: its arrays refuse to be written."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from flowlex.instances import read_instance
from flowlex.instances.library import library


@pytest.mark.parametrize("path", library().values(), ids=list(library()))
def test_arrays_of_an_instance_cannot_be_written(path):
    view = read_instance(path).arrays
    arrays = [getattr(view, field.name) for field in dataclasses.fields(view)]
    arrays = [array for array in arrays if isinstance(array, np.ndarray)]
    assert arrays
    for array in arrays:
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 1
