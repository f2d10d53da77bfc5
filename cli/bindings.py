"""``flowlex bindings``: what to tell Kubernetes so that a placement comes about."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["bindings"]


def bindings(
    solution: Annotated[Path, typer.Argument(metavar="SOLUTION", help="Solution file of a pod placement.")],
    instance: Annotated[Path, typer.Argument(metavar="INSTANCE", help="Its instance, as `flowlex import` made it.")],
    manifests: Annotated[
        Path | None,
        typer.Option("--manifests", metavar="OBJECTS", help="Patched Pods of these objects instead of Bindings."),
    ] = None,
) -> None:
    """Print a placement as Binding and Eviction objects of Kubernetes (one List).

    With --manifests, the objects that the instance was imported from, Pods that start or move are printed whole, with
    the name of their node.

    The solution is judged first, as by `flowlex verify`. Exit code 1: it is refused. 2: a file cannot be read.
    """
    from flowlex.cli.output import complain, note
    from flowlex.instances.base import InstanceError
    from flowlex.instances.files import read_instance, read_json
    from flowlex.instances.importers.kubernetes_bindings import binding_order
    from flowlex.instances.importers.kubernetes_bindings import bindings as objects_of
    from flowlex.instances.importers.kubernetes_bindings import manifests as patched
    from flowlex.instances.pods import PodInstance
    from flowlex.validation.certificates import SolutionError, verify

    source = read_instance(instance)
    if not isinstance(source, PodInstance):
        raise InstanceError(f"bindings are of pod placements, this is {source.kind!r}", path=instance)
    document = read_json(solution)
    try:
        certificate = verify(document, source)
    except SolutionError as error:
        raise InstanceError(str(error), path=solution) from error
    if not certificate.ok:
        failed = next(check for check in certificate.checks if not check.ok)
        complain(f"{solution}: refused ({failed.name}: {failed.detail or failed.worst})")
        raise typer.Exit(1)
    placement, cards = document["answer"]["placement"], document["answer"]["cards"]
    made = patched(manifests, source, placement, cards) if manifests else objects_of(source, placement, cards)
    if later := binding_order(source, placement)[1]:
        note(f"{len(later)} pods are left for the next placement, since no order keeps their spread: {later[0]}, ..")
    if source.pending:
        note(f"{len(source.pending)} pods stay pending, as the importer could not state them (see `pending`)")
    typer.echo(json.dumps(made, indent=1))
