"""One family per scheduling problem: an instance becomes a formulation, and its optimum a certified solution."""

from flowlex.models.answer import Dual, ModelError, Solution
from flowlex.models.base import Model, Run
from flowlex.models.mathematics import Equation, Symbol
from flowlex.models.registry import compare, model_for, solve

__all__ = ["Dual", "Equation", "Model", "ModelError", "Run", "Solution", "Symbol", "compare", "model_for", "solve"]
