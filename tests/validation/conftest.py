"""Shared by the tests of validation."""

import pytest

from flowlex.validation.restated import allocation, gpu_answer
from flowlex.validation.restated.flow import solution_verifier


@pytest.fixture
def few_columns(monkeypatch):
    """Judge small files as large ones are: over those columns only that prices need."""
    for module in (allocation, gpu_answer, solution_verifier):
        monkeypatch.setattr(module, "_WRITTEN_OUT", 0)
