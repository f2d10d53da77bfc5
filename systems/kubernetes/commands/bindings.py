"""``flowlex bindings``: the Kubernetes objects that carry out a placement."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flowlex.cli.console_output import complain, note, refuse_existing, write_output
from flowlex.cli.options import ForceOption
from flowlex.instances.input_errors import counted

if TYPE_CHECKING:
    from flowlex.systems.kubernetes.bindings import Plan


_SUFFIXES = (".yaml", ".yml", ".json", ".sh")


def bindings(
    solution: Annotated[Path, typer.Argument(metavar="SOLUTION", help="Solution file of a pod placement.")],
    instance: Annotated[Path, typer.Argument(metavar="INSTANCE", help="Its instance, as `flowlex import` made it.")],
    objects: Annotated[
        Path | None,
        typer.Option("--objects", metavar="OBJECTS", help="What the instance was made from."),
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option("--against", metavar="NEWER", help="Newer objects: refuse what has changed (needs --objects)."),
    ] = None,
    manifests: Annotated[
        Path | None,
        typer.Option("--manifests", metavar="OBJECTS", help="Patched Pods of these objects instead of Bindings."),
    ] = None,
    output: Annotated[
        str,
        typer.Option("-o", "--output", metavar="FILE", help="A .yaml, .json or .sh; '-': JSON, printed."),
    ] = "-",
    force: ForceOption = False,
) -> None:
    """Print a placement as Eviction and Binding objects of Kubernetes (one List), or as a script that applies them.

    With --objects, an Eviction has the pod's grace and waits where a PodDisruptionBudget forbids it, a Binding holds
    for the pod as it was seen, and annotations name shared cards for the device plugin. With --manifests, Pods that
    start or move are printed whole, with the name of their node.

    The solution is verified first, as by `flowlex verify`. Exit code 1: it is refused, or something has changed since.
    2: a file cannot be read.
    """
    from flowlex.instances.files import read_instance, read_json
    from flowlex.instances.instance_base import InstanceError
    from flowlex.instances.pods import PodInstance
    from flowlex.systems.kubernetes.bindings import manifests as patched
    from flowlex.systems.kubernetes.bindings import plan
    from flowlex.systems.kubernetes.objects import read_cluster
    from flowlex.systems.kubernetes.snapshot_diff import changed_since
    from flowlex.validation.certificates import SolutionError, verify

    check_output(output, force)
    if against is not None and objects is None:
        raise typer.BadParameter("needs --objects, what the instance was imported from", param_hint="--against")
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
    placement, cards = (document["answer"].get(name) for name in ("placement", "cards"))
    if placement is None or cards is None:
        reason = "it states no placement: without an answer, or with pods that relaxed variables split among nodes"
        raise InstanceError(f"{reason}; solve it again", path=solution)
    cluster = None if objects is None else read_cluster(objects)
    made = plan(source, placement, cards, cluster, now_ns=time.time_ns())
    if against is not None and cluster is not None and (wrong := changed_since(made, cluster, read_cluster(against))):
        for name, how in wrong.items():
            complain(f"{name}: {how}")
        complain(f"{counted(len(wrong), 'object')} changed since {objects}; place them again")
        raise typer.Exit(1)
    if source.pending:
        stay = counted(len(source.pending), "pod stays", "pods stay")
        note(f"{stay} pending, as the importer could not state them (see `pending`)")
    pods = patched(manifests, source, made, placement) if manifests else None
    write_plan(made, output, pods)


def check_output(output: str, force: bool) -> None:
    """Refuse, before any work, a name of another format or of an existing file."""
    if output != "-" and not output.endswith(_SUFFIXES):
        raise typer.BadParameter(f"{output!r} does not end in .yaml, .json or .sh", param_hint="-o")
    refuse_existing(force, output)


def write_plan(
    made: Plan,
    output: str,
    instead: dict[str, Any] | None = None,
    *,
    nodes: Mapping[str, str] | None = None,
    answers: dict[str, Any] | None = None,
) -> None:
    """Write the objects of a plan (or ``instead``) in the format of the name.

    ``nodes``: where the evicted pods run. ``answers``: the answer for every pod, written beside the objects; without
    it, pods that wait are reported.
    """
    from flowlex.systems.kubernetes.bindings import script

    for name, reason in list(made.waits.items())[:5] if answers is None else ():
        note(f"{name} is left as it is: {reason}")
    if answers is None and len(made.waits) > 5:
        note(f"{counted(len(made.waits) - 5, 'more pod is', 'more pods are')} left for such reasons")
    document = instead or made.document
    if output.endswith(".sh"):
        if instead is not None:
            raise typer.BadParameter("a script applies Bindings; write Pods to .yaml or .json", param_hint="-o")
        text = script(made, nodes)
    elif output.endswith((".yaml", ".yml")):
        import yaml

        said = yaml.safe_dump(answers, sort_keys=False) if answers else ""
        text = "".join(f"# {line}\n" for line in said.splitlines()) + yaml.safe_dump(document, sort_keys=False)
    else:
        text = json.dumps(document | ({"answers": answers} if answers else {}), indent=1) + "\n"
    write_output(output, text.encode())
    evictions = sum(item["kind"] == "Eviction" for item in made.items)
    if output != "-":
        script_only = evictions and not output.endswith(".sh")
        remedy = "; kubectl creates Evictions by path only: -o FILE.sh does it" if script_only else ""
        note(f"{output}: {counted(evictions, 'eviction')}, {counted(len(made.items) - evictions, 'binding')}{remedy}")
