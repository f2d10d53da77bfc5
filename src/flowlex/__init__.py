"""Cluster-scheduling problems stated as linear and integer programs, solved to a proven optimum.

The public names are listed once, in ``__init__.pyi``; each is imported when it is first used.
"""

from functools import cache


@cache
def _stub() -> tuple:
    """What gives a public name, and all names; the commands need none, so that the stub is read late."""
    import lazy_loader

    return lazy_loader.attach_stub(__name__, __file__)


def __dir__() -> list[str]:
    return _stub()[1]()


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version

        return version(__name__)
    if name == "__all__":
        return _stub()[2]
    try:
        return _stub()[0](name)
    except AttributeError:
        if name.startswith("__"):
            raise
        from difflib import get_close_matches

        near = get_close_matches(name, _stub()[2], n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise AttributeError(f"flowlex has no name {name!r}{hint}", name=name) from None
