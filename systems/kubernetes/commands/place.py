"""``flowlex place``: where a cluster's waiting pods would run, and why the others wait."""

from __future__ import annotations

import json
import time
import warnings
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flowlex.cli.console_output import note, picture_suffix, refuse_existing, text_of, write_picture
from flowlex.cli.options import ForceOption, GapOption, SeedOption, TimeLimitOption
from flowlex.instances.input_errors import counted
from flowlex.systems.kubernetes.commands.bindings import check_output, write_plan

if TYPE_CHECKING:
    from flowlex.systems.kubernetes.defragmentation import Move
    from flowlex.systems.kubernetes.placement_plan import Answer, PlacementPlan


#: Most pods in the printed table.
_ROWS = 30
_COMMAND = "kubectl get nodes,pods,pvc,pv,storageclass,csinode -A -o json"


def place(
    objects: Annotated[
        str,
        typer.Argument(metavar="OBJECTS", help=f"What `{_COMMAND}` prints; '-': standard input."),
    ],
    output: Annotated[
        str | None,
        typer.Option("-o", "--output", metavar="FILE", help="Evictions, bindings, answers: .yaml, .json, .sh to run."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document with the answer for every pod.")
    ] = False,
    compare: Annotated[
        bool, typer.Option("--compare", help="Print what one-by-one passes and the model bind, by priority.")
    ] = False,
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
    """Place the waiting pods of a Kubernetes cluster, and say of every pod where it goes or why it waits.

    The first plan binds pods one by one in the order of the default scheduler; a better one is looked for until the
    time limit, which counts for the whole command. Reasons are those of Kubernetes' own events. Exit code 0: there is
    an answer, though pods may wait. 2: the objects cannot be read.
    """
    if picture:
        picture_suffix(picture, "--picture")
    refuse_existing(force, picture)
    if output:
        check_output(output, force)

    from flowlex.formulations.processor_clock import processor_seconds
    from flowlex.systems.kubernetes.objects import read_cluster
    from flowlex.systems.kubernetes.placement_instance import Snapshot, with_nodes
    from flowlex.systems.kubernetes.placement_plan import place_pods

    began = processor_seconds()
    cluster = read_cluster(objects)
    parts = 1 + len(what_if or ()) + bool(defragment)

    def until(part: int) -> float | None:
        return None if time_limit is None else began + time_limit * part / parts

    options: dict[str, Any] = {"preempt_below": preempt_below, "gap": gap, "seed": seed or 0}
    read: dict[str, Any] = {"card_gb": card_gb, "scheduler": scheduler}
    wishes = [(wanted, *with_nodes(cluster, wanted)) for wanted in what_if or ()]
    plan = place_pods(Snapshot.of(cluster, objects, **read), until=until(1), **options)
    lines, document = _report(plan), _document(plan)
    for part, (wanted, larger, many) in enumerate(wishes, 2):
        more = place_pods(Snapshot.of(larger, objects, **read), until=until(part), even=1.0, **options)
        lines.append(_gain(wanted, many, plan, more))
    moves: tuple[Move, ...] = ()
    if defragment:
        said, moves = _defragmented(plan, defragment, until(parts), seed or 0, read)
        lines += said
        document["moves"] = [asdict(move) for move in moves]
    if compare:
        lines += _compared(plan, document)
    for told in dict.fromkeys(plan.notes):
        note(told)
    answers = plan.answers()
    if as_json:
        typer.echo(json.dumps(document | {"report": lines}, indent=1))
    else:
        typer.echo("\n".join([*lines, *_table(answers)]))
    if picture:
        _draw(plan, picture)
    if output:
        nodes = {pod.name: str(pod.node) for pod in plan.stopped}
        made = plan.objects(time.time_ns())
        made.items.extend(_moved(plan, moves))
        write_plan(made, output, nodes=nodes | {move.pod: move.source for move in moves}, answers=document)


def _document(plan: PlacementPlan) -> dict[str, Any]:
    """Return everything that is known of a plan, as plain data."""
    return {
        "kind": "pod-placement-answers",
        "pods": [asdict(answer) for answer in plan.answers()],
        "stopped": [{"pod": pod.name, "priority": pod.priority, "node": pod.node} for pod in plan.stopped],
        "priorities": [asdict(level) for level in plan.levels],
        "bound": plan.bound,
        "waiting": len(plan.snapshot.cluster.waiting) - plan.bound,
        "proven": plan.proven,
        "method": plan.method,
        "notes": list(dict.fromkeys(plan.notes)),
    }


def _report(plan: PlacementPlan) -> list[str]:
    """Report the result of the placement, one topic per line."""
    cluster, state = plan.snapshot.cluster, plan.made.state
    cards = sum(state.cards.many)
    lines = [
        f"cluster: {counted(len(cluster.nodes), 'node')}{' with ' + counted(cards, 'GPU card') if cards else ''}, "
        f"{counted(len(cluster.running), 'pod runs', 'pods run')}, {counted(len(cluster.waiting), 'waits', 'wait')}"
    ]
    wanted = len(cluster.waiting)
    if wanted:
        proven = "all of them" if plan.bound == wanted else _proven(plan)
        lines.append(f"bound: {plan.bound} of {counted(wanted, 'waiting pod')}, {proven}{_by_priority(plan)}")
    if plan.stopped:
        some = ", ".join(pod.name for pod in plan.stopped[:3]) + (", .." if len(plan.stopped) > 3 else "")
        lines.append(f"stopped: {counted(len(plan.stopped), 'running pod')} for more important ones ({some})")
    return lines + _load(plan)


def _proven(plan: PlacementPlan) -> str:
    if plan.proven:
        return "proven to be the most"
    open_level = next(level for level in plan.levels if level.bound not in (level.wanted, level.most))
    if open_level.most is None:
        return "at least as many as one by one; more are not ruled out"
    what = f"of priority {open_level.priority} " if len(plan.levels) > 1 else ""
    return f"no plan binds more than {open_level.most} {what}".rstrip()


def _by_priority(plan: PlacementPlan) -> str:
    if len(plan.levels) < 2:
        return ""
    parts = [f"{level.priority}: {level.bound} of {level.wanted}" for level in plan.levels[:4]]
    return f"; by priority {', '.join(parts)}{', ..' if len(plan.levels) > 4 else ''}"


def _load(plan: PlacementPlan) -> list[str]:
    """Report how even the loads of the nodes are; the distance to the best is known if the plan is the model's."""
    import numpy as np

    from flowlex.models.pods.problem.cluster import Cluster as Filled

    places, gone = plan.made.places, {pod.name for pod in plan.stopped}
    if (instance := plan.instance) is None or not places.keys() <= {pod.name for pod in instance.pods}:
        return []
    view, at = instance.arrays, {node.name: n for n, node in enumerate(instance.nodes)}
    names = [None if pod.name in gone else places.get(pod.name, pod.node) for pod in instance.pods]
    node = np.array([-1 if name is None else at[name] for name in names], np.int64)
    loads = 100 * Filled.of(view, node, {}, cards=False).loads
    before = 100 * Filled.of(view, view.running, {}, cards=False).loads
    gap = None if plan.solution is None else plan.solution.absolute_gap
    same = plan.solution is not None and bool((node == plan.solution.node).all()) and gap is not None
    apart = f"; at most {100 * max(0.0, gap or 0.0):.2g} points above the most even" if same else ""
    was = f", {before.std():.2f} % before" if (view.running >= 0).any() else ""
    return [f"load: {loads.min():.1f} to {loads.max():.1f} % of a node, deviation {loads.std():.2f} %{was}{apart}"]


def _table(answers: list[Answer]) -> list[str]:
    """Return the answers as rows: first pods that wait, the most important first, then those that are bound."""
    if not answers:
        return []
    rows = sorted(answers, key=lambda answer: answer.node is not None)
    shown = rows[:_ROWS]
    head = ("POD", "PRIORITY", "SINCE", "NODE OR REASON")
    cells = [(answer.pod, str(answer.priority), answer.since or "-", answer.node or answer.reason) for answer in shown]
    width = [max(len(text_of(row[k])) for row in (head, *cells)) for k in range(3)]
    lines = [
        "",
        *("  ".join([*(text_of(row[k]).ljust(width[k]) for k in range(3)), text_of(row[3])]) for row in (head, *cells)),
    ]
    if len(rows) > len(shown):
        lines.append(f"and {counted(len(rows) - len(shown), 'more pod')}; --json and -o list all")
    return lines


def _gain(wanted: str, many: int, now: PlacementPlan, then: PlacementPlan) -> str:
    """Report how many more pods fit; proven if both numbers are."""
    more = then.bound - now.bound
    proven = "proven" if now.proven and then.proven else "not proven"
    bound = counted(more, "more pod is bound", "more pods are bound")
    return f"what if {wanted}: {bound} ({proven}), {more / many:.3g} for each node"


def _compared(plan: PlacementPlan, document: dict[str, Any]) -> list[str]:
    """Return a table of how many pods of each priority every method binds."""
    from flowlex.systems.kubernetes.one_by_one import SCORES, new_bindings, place_waiting

    columns: dict[str, dict[int, int]] = {}
    for score in SCORES:
        made = new_bindings(plan.snapshot.cluster, plan.snapshot.first_state)
        place_waiting(made, score)
        columns[f"one by one, {score}"] = {p: many for (p, stops), many in made.counts().items() if not stops}
    columns["this plan"] = {level.priority: level.bound for level in plan.levels}
    columns["at most"] = {level.priority: level.most for level in plan.levels if level.most is not None}
    document["compare"] = columns
    head = ["priority", "waiting", *columns]
    rows = [
        [str(level.priority), str(level.wanted)]
        + [
            str(many.get(level.priority, "-" if name == "at most" and level.bound < level.wanted else 0))
            if name != "at most" or level.bound < level.wanted or level.priority in many
            else str(level.wanted)
            for name, many in columns.items()
        ]
        for level in plan.levels
    ]
    width = [max(len(row[k]) for row in (head, *rows)) for k in range(len(head))]
    return [
        "compare:",
        *("  ".join(cell.rjust(w) for cell, w in zip(row, width, strict=True)) for row in (head, *rows)),
    ]


def _defragmented(
    plan: PlacementPlan, moves: int, until: float | None, seed: int, read: dict[str, Any]
) -> tuple[list[str], tuple[Move, ...]]:
    from flowlex.formulations.processor_clock import processor_seconds
    from flowlex.systems.kubernetes.defragmentation import defragment
    from flowlex.systems.kubernetes.placement_instance import movable_instance

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        instance = movable_instance(plan.snapshot.cluster, plan.snapshot.path, **read)
    left = None if until is None else max(0.5, until - processor_seconds())
    found = defragment(instance, moves, time_limit_s=left, seed=seed)
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
    for move in found.moves:
        lines.append(f"  move {move.pod} from {move.source} to {move.target}, card {', '.join(map(str, move.cards))}")
    return lines, found.moves


def _moved(plan: PlacementPlan, moves: tuple[Move, ...]) -> list[dict[str, Any]]:
    """Return the Evictions of moves, with the node where the controller's new pod should go.

    Moves into which a pod of the plan is bound are left out: their target may be full now.
    """
    from flowlex.systems.kubernetes.bindings import eviction

    running = {pod.name: pod for pod in plan.snapshot.cluster.running}
    taken, gone = {*plan.made.places.values()}, {pod.name for pod in plan.stopped}
    kept = [move for move in moves if move.target not in taken and move.pod not in gone]
    if len(kept) < len(moves):
        note(f"{counted(len(moves) - len(kept), 'move')} to nodes where pods are bound now; defragment again later")
    return [eviction(move.pod, running[move.pod], move.target) for move in kept]


def _draw(plan: PlacementPlan, picture: str) -> None:
    from flowlex.systems.kubernetes.placement_plan import filled_clusters

    shown = filled_clusters(plan)

    def draw() -> Any:
        from flowlex.systems.kubernetes.gpu_card_plot import draw_cards

        return draw_cards(*shown)

    write_picture(picture, draw, "--picture")
