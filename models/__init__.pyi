from .model_base import Model as Model
from .model_base import Run as Run
from .registry import compare as compare
from .registry import model_for as model_for
from .registry import solve as solve
from .solution import Dual as Dual
from .solution import ModelError as ModelError
from .solution import Solution as Solution
