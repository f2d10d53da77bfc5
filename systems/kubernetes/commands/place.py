"""``flowlex place``: what a cluster's waiting pods would get, in ten lines."""

from __future__ import annotations

import time
import warnings
from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flowlex.cli.console_output import complain, note, picture_suffix, refuse_existing, write_picture
from flowlex.cli.options import ForceOption, GapOption, SeedOption, TimeLimitOption
from flowlex.instances.input_errors import counted
from flowlex.systems.kubernetes.commands.bindings import check_output, write_plan

if TYPE_CHECKING:
    from flowlex.models.pods.solution import PlacementSolution
    from flowlex.systems.kubernetes.bindings import Plan
    from flowlex.systems.kubernetes.objects import Cluster


#: Most reasons printed of each sort; the others are counted.
_REASONS = 3
#: Absolute gap of the balance, as a fraction of a node's load.
_EVEN = 0.01
#: Most placements after the first, for pods whose rules count the bound pods.
_ROUNDS = 4


def place(
    objects: Annotated[
        str,
        typer.Argument(metavar="OBJECTS", help="What `kubectl get nodes,pods -A -o json` prints; '-': standard input."),
    ],
    output: Annotated[
        str | None,
        typer.Option("-o", "--output", metavar="FILE", help="Evictions and bindings: .yaml, .json, or .sh to run."),
    ] = None,
    what_if: Annotated[
        list[str] | None,
        typer.Option(
            "--what-if", metavar="'N nodes of NAME'", help="How many more pods fit with more nodes; repeatable."
        ),
    ] = None,
    defragment: Annotated[
        int | None,
        typer.Option("--defragment", min=1, metavar="N", help="Find N moves that free as many cards as possible."),
    ] = None,
    picture: Annotated[
        str | None,
        typer.Option("--picture", metavar="FILE", help="Nodes and cards before and after: .png, .svg, .pdf."),
    ] = None,
    card_gb: Annotated[
        float, typer.Option("--card-gb", min=0.001, metavar="GB", help="Memory of cards whose node does not state it.")
    ] = 16.0,
    preempt_below: Annotated[
        int | None,
        typer.Option("--preempt-below", metavar="P", help="Running pods of a lower priority may be stopped."),
    ] = None,
    scheduler: Annotated[
        list[str] | None,
        typer.Option(
            "--scheduler",
            metavar="NAME",
            help="Place pods of this schedulerName; repeatable; any: of all. Without: of default-scheduler, volcano "
            "and scheduler-plugins-scheduler.",
        ),
    ] = None,
    time_limit: TimeLimitOption = 60.0,
    gap: GapOption = 0.0,
    seed: SeedOption = None,
    force: ForceOption = False,
) -> None:
    """Place the waiting pods of a Kubernetes cluster and say, in about ten lines, what comes of it.

    What would be bound, what waits and why, what would be stopped, how even the nodes are and how far that is from
    the best. Exit code 0: there is an answer, though pods may wait. 1: there is none. 2: the objects cannot be read.
    """
    if picture:
        picture_suffix(picture, "--picture")
    refuse_existing(force, picture)
    if output:
        check_output(output, force)

    from flowlex.systems.kubernetes.objects import read_cluster
    from flowlex.systems.kubernetes.placement_instance import with_nodes

    cluster = read_cluster(objects)
    options: dict[str, Any] = {"time_limit_s": time_limit, "gap": gap, "seed": seed or 0}
    wishes = [(wanted, *with_nodes(cluster, wanted)) for wanted in what_if or ()]
    read = {"card_gb": card_gb, "preempt_below": preempt_below, "scheduler": scheduler}
    rounds = _rounds(cluster, objects, read, options)
    lines = _report(cluster, [solution for _, solution in rounds])
    for wanted, larger, many in wishes:
        lines.append(_gain(wanted, many, rounds[0][1], _solved(larger, objects, read, options, 1.0)))
    if defragment:
        lines += _defragmented(cluster, objects, read, defragment, options)
    typer.echo("\n".join(lines))
    if picture:
        from flowlex.models.pods.gpu_card_plot import draw_cards
        from flowlex.models.pods.problem.running_pods import running_cluster

        first, last = rounds[0][1], rounds[-1][1]
        before = running_cluster(first.source.arrays, cards=True)
        assert before is not None and last.cluster is not None
        shown = {"before": before, "after": last.cluster}
        write_picture(picture, lambda: draw_cards(last.source, shown), "--picture")
    if output:
        write_plan(_plan(rounds), output)


def _rounds(
    cluster: Cluster, path: str, read: dict[str, Any], options: dict[str, Any]
) -> list[tuple[Cluster, PlacementSolution]]:
    """Compute successive placements: rules of later ones count the pods of earlier ones as running."""
    from flowlex.systems.kubernetes.placement_instance import after

    found = [(cluster, _solved(cluster, path, read, options))]
    while len(found) <= _ROUNDS:
        solution = found[-1][1]
        ruled = {pod.name for pod in solution.source.pods if pod.spreads or pod.resources}
        if not solution.source.pending and not ruled & set(solution.queue):
            break
        answer = solution.to_dict()["answer"]
        cluster = after(cluster, solution.source, answer["placement"], answer["cards"])
        read = {**read, "preempt_below": None}
        solution = _solved(cluster, path, read, options)
        if not _totals(solution)[0]:
            break
        found.append((cluster, solution))
    return found


def _plan(rounds: list[tuple[Cluster, PlacementSolution]]) -> Plan:
    """Combine the objects of all placements in order, and the pods that wait."""
    from flowlex.systems.kubernetes.bindings import Plan, plan

    made = Plan()
    for cluster, solution in rounds:
        answer = solution.to_dict()["answer"]
        more = plan(solution.source, answer["placement"], answer["cards"], cluster, now_ns=time.time_ns())
        made.items.extend(more.items)
        made.waits.update(more.waits)
        if more.waits:  # later placements depend on the pods that wait now
            break
    return made


def _solved(
    cluster: Cluster, path: str, read: dict[str, Any], options: dict[str, Any], even: float = _EVEN
) -> PlacementSolution:
    """Place the waiting pods; ``even`` is the absolute gap of the balance."""
    from flowlex.models.pods.model import PodPlacement
    from flowlex.systems.kubernetes.placement_instance import instance_of

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        instance = instance_of(cluster, path, **read)
    solution = PodPlacement(instance, absolute_gap=even).solve("highs", **options)
    if not solution.status.has_answer:
        complain(f"{path}: no answer ({solution.status}). {solution.message}".rstrip())
        raise typer.Exit(1)
    for warning in caught:
        note(f"{warning.message}")
    return solution


def _report(cluster: Cluster, rounds: list[PlacementSolution]) -> list[str]:
    """Report the result of the placement, one topic per line."""
    from flowlex.models.pods.problem.running_pods import running_cluster
    from flowlex.models.pods.resource_shortfalls import shortfalls

    first, solution = rounds[0], rounds[-1]
    instance = solution.source
    cards = sum(node.cards for node in instance.nodes)
    lines = [
        f"cluster: {counted(len(cluster.nodes), 'node')}{' with ' + counted(cards, 'GPU card') if cards else ''}, "
        f"{counted(len(cluster.running), 'pod runs', 'pods run')}, {counted(len(cluster.waiting), 'waits', 'wait')}"
    ]
    placed, wanted, most = _totals(first)
    out = len(first.source.pending)
    proven = f"all but {out} left out" if out and placed == wanted else _proven(placed, most, wanted)
    if cluster.waiting:
        lines.append(f"bound: {placed} of {counted(wanted + out, 'waiting pod')}, {proven}{_by_priority(first)}")
    if later := sum(_totals(each)[0] for each in rounds[1:]):
        lines.append(f"then: {later} more, whose rules count these as running")
    lines += _limited("waits", [str(each) for each in shortfalls(solution) if each.pods])
    reasons = Counter(instance.pending.values())
    such = {why: name for name, why in reversed(list(instance.pending.items()))}
    lines += _limited("left out", [f"{many}: {why} ({such[why]})" for why, many in reasons.most_common()])
    pods = first.source.pods
    stopped = [pod.name for p, pod in enumerate(pods) if pod.node is not None and first.node[p] < 0]
    if stopped:
        some = ", ".join(stopped[:3]) + (", .." if len(stopped) > 3 else "")
        lines.append(f"stopped: {counted(len(stopped), 'running pod')} for more important ones ({some})")
    before = running_cluster(first.source.arrays, cards=True)
    was = "" if before is None else f", {100 * float(before.loads.std()):.2f} % before"
    distance = (
        "unknown" if solution.absolute_gap is None else f"at most {100 * max(0.0, solution.absolute_gap):.2g} points"
    )
    loads = 100 * solution.loads
    lines.append(
        f"load: {loads.min():.1f} to {loads.max():.1f} % of a node, deviation {loads.std():.2f} %{was}; "
        f"{distance} above the most even"
    )
    certificate = first.certificate
    if certificate is not None:
        checks = counted(len(certificate.checks), "check")
        lines.append(f"proof: {certificate.claim}, {checks}{'' if certificate.ok else ', REFUSED'}")
    return lines


def _totals(solution: PlacementSolution) -> tuple[int, int, int]:
    """Return numbers of waiting pods: placed, all, and the proven upper bound by priority."""
    levels = _waiting_levels(solution).values()
    placed, wanted, most = (sum(round(numbers[k]) for numbers in levels) for k in range(3))
    return placed, wanted, most


def _waiting_levels(solution: PlacementSolution) -> dict[Any, tuple[float, float, float]]:
    return {key: found for key, found in solution.admitted.items() if not str(key).endswith(" running")}


def _proven(placed: int, most: int, wanted: int) -> str:
    if placed == wanted:
        return "all of them"
    return "proven to be the most" if placed >= most else f"no placement binds more than {most} (priority by priority)"


def _by_priority(solution: PlacementSolution) -> str:
    levels = _waiting_levels(solution)
    if len(levels) < 2:
        return ""
    parts = [f"{key}: {placed:.0f} of {wanted:.0f}" for key, (placed, wanted, _) in list(levels.items())[:4]]
    return f"; by priority {', '.join(parts)}{', ..' if len(levels) > 4 else ''}"


def _limited(label: str, reasons: list[str]) -> list[str]:
    shown = reasons if len(reasons) <= _REASONS + 1 else reasons[:_REASONS]
    more = len(reasons) - len(shown)
    return [f"{label}: {text}" for text in shown] + ([f"{label}: {more} more reasons"] if more else [])


def _gain(wanted: str, many: int, now: PlacementSolution, then: PlacementSolution) -> str:
    """Report how many more pods fit, with proven bounds from both placements."""
    placed, _, most = _totals(now)
    more, _, most_then = _totals(then)
    least, top = max(0, more - most), most_then - placed
    proven = "proven" if least == top else f"proven: between {least} and {top}"
    bound = counted(more - placed, "more pod is bound", "more pods are bound")
    return f"what if {wanted}: {bound} ({proven}), {(more - placed) / many:.3g} for each node"


def _defragmented(cluster: Cluster, path: str, read: dict[str, Any], moves: int, options: dict[str, Any]) -> list[str]:
    from flowlex.models.pods.defragmentation import defragment
    from flowlex.systems.kubernetes.placement_instance import movable_instance

    read = {name: value for name, value in read.items() if name != "preempt_below"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        instance = movable_instance(cluster, path, **read)
    options = {name: options[name] for name in ("time_limit_s", "seed")}
    found = defragment(instance, moves, **options)
    best = (
        "proven to be the most"
        if found.after >= found.bound
        else f"no plan frees more than {found.bound - found.before}"
    )
    lines = [
        f"defragment: {counted(len(found.moves), 'move frees', 'moves free')} "
        f"{counted(found.after - found.before, 'whole card')} "
        f"({found.before} idle before, {found.after} after; {best})"
    ]
    for move in found.moves[:5]:
        lines.append(f"  move {move.pod} from {move.source} to {move.target}, card {', '.join(map(str, move.cards))}")
    if len(found.moves) > 5:
        lines.append(f"  and {counted(len(found.moves) - 5, 'more move')}")
    return lines
