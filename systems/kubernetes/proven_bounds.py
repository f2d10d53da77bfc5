"""How many pods of each priority any plan binds at most, given the numbers of a plan for the priorities above.

The bounds are those of the linear relaxation of an instance, and count only as far as the certificate's code, which
shares nothing with the model, confirms them from the duals.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import numpy as np

from flowlex.formulations.processor_clock import processor_seconds
from flowlex.formulations.solver_outcome import SolveOptions
from flowlex.instances.pods import PodInstance
from flowlex.models.pods.methods.proof import ProofNames
from flowlex.models.pods.model import PodPlacement
from flowlex.models.pods.solution import PlacementSolution
from flowlex.systems.kubernetes.one_by_one import Bindings
from flowlex.validation.restated.pods.kinds import Kinds
from flowlex.validation.restated.pods.verifier import most_of_level

#: Share of the remaining time for a solve; the rest is for checking its duals.
_SOLVE = 0.7
#: No further bound is tried in less than this share of the seconds that the one before took.
_WORTH = 0.5


def most_of_priorities(
    instance: PodInstance,
    made: Bindings,
    solution: PlacementSolution | None = None,
    until: float | None = None,
    known: Mapping[int, int] | None = None,
) -> dict[int, int]:
    """Return the proven most pods of each priority, given a plan's numbers of the priorities above.

    ``instance`` allows whatever the filters allow; pods that are not in it cannot be placed. ``solution`` is one of
    this instance: its bounds may be smaller, and hold while its numbers above are the plan's. Priorities without a
    proven bound are left out; ``until`` is the `processor_seconds` at which the search for bounds ends. ``known`` are
    bounds that were proven for the same numbers of the priorities above.
    """
    stated, placed = {pod.name for pod in instance.pods}, {pod.name for pod in made.order}
    if not placed <= stated:
        return {}
    gone = {pod.name for pod in made.stopped}
    there = np.array([pod.name not in gone if pod.node is not None else pod.name in placed for pod in instance.pods])
    present = {pod.priority for pod in instance.pods if pod.node is None}
    found = {pod.priority: 0 for pod in made.state.cluster.waiting if pod.priority not in present}
    if not present:
        return found
    model = PodPlacement(instance)
    levels, ours = model.levels, model.levels.total(there)
    wanted = levels.total(levels.of >= 0)
    kinds, names, kept, spent = Kinds(instance, {}), None, dict[str, Fraction](), 0.0
    for k, key in enumerate(levels.keys):
        if ours[k] == wanted[k]:
            most = wanted[k]
        elif known and isinstance(key, int) and key in known:
            most = known[key]
        elif until is not None and processor_seconds() + _WORTH * spent >= until:
            break
        else:
            most, began = wanted[k], processor_seconds()
            limit = None if until is None else max(0.1, _SOLVE * (until - processor_seconds()))
            prices = model.bounds.most(k, ours[:k], SolveOptions(time_limit_s=limit))
            if prices is not None:
                names = names or ProofNames(instance, model.bounds, levels)
                shown = most_of_level(kinds, str(key), kept, names.of_level(k, prices))
                most = most if shown is None else min(most, int(shown))
            spent = processor_seconds() - began
        if isinstance(key, int):
            found[key] = most
        kept[str(key)] = Fraction(ours[k])
    for key, most in _of_solution(solution, dict(zip(levels.keys, ours, strict=True))).items():
        found[key] = min(most, found.get(key, most))
    return found


def _of_solution(solution: PlacementSolution | None, ours: dict[int | str, int]) -> dict[int, int]:
    """Return the bounds of a solution that its certificate proves, while its numbers above are the plan's."""
    found: dict[int, int] = {}
    if solution is None or solution.certificate is None:
        return found
    shown = {check.name for check in solution.certificate.checks if check.ok and check.how != "quoted"}
    every = solution.stated is not None and solution.certificate.claim == "optimal"
    for key, (admitted, _, most) in solution.admitted.items():
        if not every and f"most pods of priority {key}" not in shown:
            break
        if isinstance(key, int):
            found[key] = round(most)
        if ours.get(key) != round(admitted):
            break
    return found
