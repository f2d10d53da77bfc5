"""``flowlex --version``: versions of everything that may change an answer."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import typer

_PACKAGES = ("flowlex", "numpy", "scipy", "networkx", "pandas", "pulp", "highspy", "pylmcf", "pydantic")


def different(ours: Mapping[str, str], theirs: Mapping[str, str]) -> str:
    """Describe the differences between two tables of versions; empty if they are equal."""
    names = [name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name)]
    return ", ".join(f"{name} {theirs.get(name, 'none')} instead of {ours.get(name, 'none')}" for name in names)


@cache
def versions() -> dict[str, str]:
    """Version by name; that of highspy is the one of the HiGHS solver in it."""
    import platform
    from importlib import metadata

    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found


def print_versions(wanted: bool) -> None:
    """Print the versions and exit, if requested."""
    if not wanted:
        return
    found = dict(versions())
    typer.echo(f"flowlex {found.pop('flowlex')}")
    width = max(map(len, found))
    for name, version in found.items():
        typer.echo(f"  {name:<{width}}  {version}")
    raise typer.Exit
