from .registry import GENERATORS as GENERATORS
from .registry import GeneratorSpec as GeneratorSpec
from .registry import all_generators as all_generators
from .registry import generate as generate
from .registry import generator as generator
