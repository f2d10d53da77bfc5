"""Cluster-scheduling problems stated as linear and integer programs, solved to a proven optimum.

The public names are listed once, in ``__init__.pyi``; each is imported when it is first used.
"""

import lazy_loader

_public, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version

        return version(__name__)
    try:
        return _public(name)
    except AttributeError:
        from difflib import get_close_matches

        near = get_close_matches(name, __all__, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise AttributeError(f"flowlex has no name {name!r}{hint}", name=name) from None
