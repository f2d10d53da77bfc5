"""Certificates: an answer recomputed from its data. Imports only instances and formulations, so models may use it."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
