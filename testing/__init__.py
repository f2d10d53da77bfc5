"""Unit tests of formulations: asserts, random instances, and mutants that the tests must notice.

Works on `flowlex.Problem`, PuLP problems, programs and networks of `flowlex.formulations`, models, HiGHS models, MPS
and LP files.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
