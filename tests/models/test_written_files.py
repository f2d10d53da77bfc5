"""Whatever `solve` writes, `verify` accepts: files of every kind, option and engine, as they are read back from JSON.

Instances come from small generators, with scaled numbers (1e-9 to 1e15, decimals), emptied lists and names in any
script. Inputs that an instance class, a model or an engine refuses are skipped.
"""

import json
import random
import typing
from collections import Counter
from collections.abc import Iterator
from enum import Enum
from typing import Any

import pytest

from flowlex.formulations.solver_outcome import EngineError, EngineName
from flowlex.instances import InstanceError, generate
from flowlex.instances.file_storage import json_value
from flowlex.instances.files import instance_from_document
from flowlex.instances.instance_base import Instance
from flowlex.models.model_base import ModelError
from flowlex.models.model_options import option_types
from flowlex.models.registry import model_class, model_for
from flowlex.validation.certificates import verify

#: Small instances of every kind, by generator and parameters.
GENERATORS: dict[str, tuple[str, dict[str, Any]]] = {
    "gpu-random": ("gpu-assignment", {"tasks": 5, "nodes": 2, "gpus_per_node": 2, "jobs": 2}),
    "inference-cluster": ("load-partition", {}),
    "flow-random": ("flow-scheduling", {"machines": 3}),
    "gavel-like": ("allocation", {"jobs": 4, "gpus": 4}),
    "jit-random": ("jit-bandwidth", {"machines": 3, "jobs": 2, "transfers": 2, "slots": 4}),
    "pods-scale": ("pod-placement", {"nodes": 2, "pods": 5}),
    "network-random": ("min-cost-flow", {"nodes": 6, "arcs": 15}),
}
ENGINES: tuple[EngineName, ...] = ("highs", "network", "pulp")
NAMES = ("плата", "節点", "عقدة", "a b", "ü", "näïve,=:/", "🙂", "n'\"")
#: Options that do not select a solution method.
_LEFT = {"stage", "goals", "seed", "parts"}


def scaled(part: Any, rng: random.Random, factor: float, names: dict[str, str]) -> Any:
    """Return a document with scaled decimal numbers and consistently replaced names."""
    if isinstance(part, dict):
        return {names.get(key, key): scaled(value, rng, factor, names) for key, value in part.items()}
    if isinstance(part, list):
        return [scaled(value, rng, factor, names) for value in part]
    if isinstance(part, float):
        return round(part * factor * rng.choice((1, 1, 1.1, 1 / 3)), rng.choice((3, 9, 17)))
    return names.get(part, part) if isinstance(part, str) else part


def named(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        if isinstance(part.get("name"), str):
            yield part["name"]
        part = list(part.values())
    if isinstance(part, list):
        for value in part:
            yield from named(value)


def case(generator: str, seed: int) -> tuple[Instance, dict[str, Any], EngineName] | None:
    """Return an instance, options and an engine; None if the instance is invalid."""
    rng = random.Random(f"{generator} {seed}")
    kind, parameters = GENERATORS[generator]
    document = json.loads(generate(generator, seed=seed, **parameters).model_dump_json())
    factor = 1.0 if rng.random() < 0.5 else 10.0 ** rng.randint(-9, 15)
    for part, value in document.items():
        if isinstance(value, list) and rng.random() < 0.1:
            document[part] = []
    names = {name: f"{rng.choice(NAMES)}{k}" for k, name in enumerate(dict.fromkeys(named(document)))}
    options = {}
    for option, kind_of in option_types(model_class(kind)).items():
        if option not in _LEFT and rng.random() < 0.3:
            choices: list[object] = list(kind_of) if isinstance(kind_of, type) and issubclass(kind_of, Enum) else []
            choices += [True, False] if kind_of is bool else typing.get_args(kind_of)
            choices = [each for each in choices if isinstance(each, (str, bool))]
            if choices:
                options[option] = rng.choice(choices)
    try:
        instance = instance_from_document(scaled(document, rng, factor, names if rng.random() < 0.5 else {}))
    except InstanceError:
        return None
    return instance, options, rng.choice(ENGINES)


def changed(part: Any, written: Any, place: str = "") -> str:
    """Return the first place where JSON changes a document, so that `solve` certifies other data than the file has."""
    if isinstance(part, dict):
        items = part.items() if part.keys() == written.keys() else [("keys", (part, written))]
        return next(filter(None, (changed(value, written.get(key), f"{place}.{key}") for key, value in items)), "")
    if isinstance(part, list) and isinstance(written, list) and len(part) == len(written):
        pairs = enumerate(zip(part, written, strict=True))
        return next(filter(None, (changed(*pair, f"{place}.{k}") for k, pair in pairs)), "")
    return "" if type(part) is type(written) and part == written else f"{place}: {part!r}"


def outcome(generator: str, seed: int) -> str:
    """Return the outcome of a case."""
    made = case(generator, seed)
    if made is None:
        return "no instance"
    instance, options, engine = made
    try:
        solution = model_for(instance, **options).solve(engine, max_steps=20_000 if engine == "highs" else None)
    except (ModelError, EngineError):
        return "not taken"
    if solution.certificate is None:
        return "nothing claimed"
    document = solution.to_dict()
    written = json.loads(json.dumps(json_value(document), allow_nan=False))
    assert not changed(document, written), f"{generator} {seed} {options} {engine}: {changed(document, written)}"
    certificate = verify(written, instance)
    assert certificate.ok, f"{generator} {seed} {options} {engine}: {certificate}"
    return certificate.verdict


def run(generator: str, seeds: range) -> None:
    wrong, counts = [], Counter[str]()
    for seed in seeds:
        try:
            counts[outcome(generator, seed)] += 1
        except Exception as error:  # report any error
            wrong.append(f"{generator} {seed}: {type(error).__name__}: {str(error)[:300]}")
    assert not wrong, "\n".join([f"{len(wrong)} of {len(seeds)}", *wrong[:10]])
    assert counts["proven"] >= len(seeds) // 8, counts


@pytest.mark.parametrize("generator", GENERATORS)
def test_whatever_solve_writes_verify_accepts(generator: str) -> None:
    run(generator, range(12 if generator == "pods-scale" else 25))


@pytest.mark.slow
@pytest.mark.parametrize("generator", GENERATORS)
def test_ten_thousand_written_files_are_accepted(generator: str) -> None:
    run(generator, range(1000, 1000 + 10_000 // len(GENERATORS)))
