"""Cluster-scheduling problems stated as linear and integer programs, solved to a proven optimum.

The public names are listed once, in ``__init__.pyi``; each is imported when it is first used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
