"""One scheduling problem per module: an instance becomes a formulation, and its optimum a solution."""

from flowlex.models.base import Equation, Model, ModelError, Solution, Symbol
from flowlex.models.registry import compare, model_for

__all__ = ["Equation", "Model", "ModelError", "Solution", "Symbol", "compare", "model_for"]
