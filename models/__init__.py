"""One family per scheduling problem: an instance becomes a formulation, and its optimum a certified solution."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
