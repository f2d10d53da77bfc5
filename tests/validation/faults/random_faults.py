"""Faults drawn at random in the code of instances, formulations and models: does a wrong answer pass as proven?

A fault changes one function that solving a small instance calls: an operator, a number, a comparison, a name (``min``
for ``max``), the order of a pair, a statement that is lost, or a result that is kept for ever. A process that has the
fault reads the instance, solves it and judges the answer; a process without it judges the file of the answer again::

    python -m tests.validation.faults.random_faults --seeds 0 300

Outcomes: *stopped* (an error, no answer), *refused* (by its certificate), *lowered* (returned, claimed as less),
*harmless* (the right answer, proven); *refused later* (a fault in reading the instance: the process saw other data,
and the file of its answer is refused by one that reads them rightly); *passed*: a wrong answer that both call proven.
"""

import argparse
import ast
import builtins
import importlib.abc
import importlib.util
import json
import os
import random
import signal
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

#: Generator, parameters and options of the instances, by family.
INSTANCES: dict[str, list[tuple[str, dict[str, Any], dict[str, Any]]]] = {
    "gpu-assignment": [
        ("gpu-random", {}, {"policy": "FSP"}),
        ("gpu-random", {"tasks": 8}, {"policy": "FS"}),
        ("gpu-figure1", {}, {"policy": "FSU"}),
        ("gpu-random", {"jobs": 2}, {"policy": "FS", "waiting": "priced"}),
    ],
    "flow-scheduling": [
        ("flow-random", {}, {}),
        ("flow-random", {"machines": 3}, {"preset": "quincy"}),
        ("flow-random", {"racks": 3}, {"order": "phases"}),
    ],
    "allocation": [
        ("gavel-like", {"jobs": 4, "gpus": 2}, {}),
        ("gavel-like", {"jobs": 4, "gpus": 3, "models": 3}, {"policy": "makespan"}),
        ("gavel-like", {"jobs": 3, "gpus": 2}, {"policy": "max_throughput"}),
        ("gavel-like", {"jobs": 4, "gpus": 6, "sharing": True}, {"policy": "water_filling"}),
        ("gavel-like", {"jobs": 4, "gpus": 4, "entities": 2}, {"policy": "hierarchical"}),
    ],
    "jit-bandwidth": [("jit-random", {}, {}), ("jit-random", {"jobs": 3, "transfers": 2}, {}), ("jit-figure4", {}, {})],
    "pod-placement": [
        ("kubeflow-testbed", {"pods": 6}, {}),
        ("pods-scale", {"nodes": 3, "pods": 8, "running": 0.3}, {}),
    ],
    "load-partition": [
        ("inference-cluster", {"workers": 3, "items": 20}, {}),
        ("inference-cluster", {"workers": 3, "items": 12, "replicas": 3}, {}),
    ],
    "min-cost-flow": [("network-random", {"nodes": 6, "arcs": 14}, {})],
}
PACKAGES = ("flowlex.instances.", "flowlex.formulations.", "flowlex.models.")
#: Seconds of a process.
LIMIT = 60
_SWAPS: dict[type, type] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.Add: ast.Sub, ast.Sub: ast.Add,
    ast.Mult: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Div, ast.Mod: ast.FloorDiv, ast.And: ast.Or,
    ast.Or: ast.And, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
_NAMES = (
    *("min max", "floor ceil", "any all", "minimum maximum", "argmin argmax", "lower upper", "tail head", "row column"),
    *("zeros ones", "rint floor", "append extend", "numerator denominator", "left right", "first last"),
)
_OTHER = {a: b for pair in _NAMES for a, b in (pair.split(), pair.split()[::-1])}

Found = list[tuple[str, Callable[[], None]]]


def _of_node(node: ast.AST) -> Found:
    """What can be changed in a node: a description, and a function that does it."""
    found: Found = []

    def change(what: str, **fields: Any) -> None:
        found.append((what, lambda: [setattr(node, k, v) for k, v in fields.items()] and None))

    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        for value in {node.value + 1, node.value - 1, node.value * 2, node.value * 0} - {node.value}:
            change(f"{node.value} -> {value}", value=value)
    elif isinstance(node, ast.Compare) and type(node.ops[0]) in _SWAPS:
        change(f"{type(node.ops[0]).__name__} swapped", ops=[_SWAPS[type(node.ops[0])](), *node.ops[1:]])
    elif isinstance(node, ast.BinOp | ast.AugAssign | ast.BoolOp) and type(node.op) in _SWAPS:
        change(f"{type(node.op).__name__} swapped", op=_SWAPS[type(node.op)]())
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.Not):
        change(f"{type(node.op).__name__} lost", op=ast.UAdd()) if isinstance(node.op, ast.USub) else None
    elif isinstance(node, ast.Name) and node.id in _OTHER and isinstance(node.ctx, ast.Load):
        change(f"{node.id} -> {_OTHER[node.id]}", id=_OTHER[node.id])
    elif isinstance(node, ast.Attribute) and node.attr in _OTHER and isinstance(node.ctx, ast.Load):
        change(f"{node.attr} -> {_OTHER[node.attr]}", attr=_OTHER[node.attr])
    elif isinstance(node, ast.Tuple) and len(node.elts) == 2 and isinstance(node.ctx, ast.Load):
        change("pair swapped", elts=node.elts[::-1])
    elif isinstance(node, ast.If):
        change("condition always holds", test=ast.Constant(True))
        change("condition never holds", test=ast.Constant(False))
    for name in ("body", "orelse"):
        block = getattr(node, name, None)
        for k, statement in enumerate(block if isinstance(block, list) else []):
            if isinstance(statement, ast.AugAssign) or (
                isinstance(statement, ast.Expr) and not isinstance(statement.value, ast.Constant)
            ):
                text = f"lost: {ast.unparse(statement)[:60]}"
                found.append((text, lambda block=block, k=k: block.__setitem__(k, ast.Pass())))
    return found


def _stale(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with its first result for ever."""
    results: list[Any] = []

    def kept(*arguments: Any, **keywords: Any) -> Any:
        if not results:
            results.append(function(*arguments, **keywords))
        return results[0]

    return kept


def changed_source(source: str, line: int, rng: random.Random) -> tuple[ast.Module, str] | None:
    """The module with a fault in the function that begins on a line, and what it is."""
    tree = ast.parse(source)
    function = next(
        (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)
         and line in (n.lineno, *(d.lineno for d in n.decorator_list))), None)  # fmt: skip
    if function is None:
        return None
    if rng.random() < 0.04:
        function.decorator_list.append(ast.Name("__stale__", ast.Load()))
        return ast.fix_missing_locations(tree), "result kept for ever"
    found = [each for part in function.body for node in _walk(part) for each in _of_node(node)]
    found += _of_node(ast.Module(function.body, []))
    if not found:
        return None
    what, apply = rng.choice(found)
    apply()
    return ast.fix_missing_locations(tree), what


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    """Nodes of a function, without annotations and messages of errors."""
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list") or isinstance(node, ast.Raise | ast.Assert):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _walk(child)


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module from a changed tree."""

    def __init__(self, module: str, tree: ast.Module, path: str) -> None:
        self.module, self.tree, self.path = module, tree, path

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != self.module:
            return None
        package = [str(Path(self.path).parent)] if self.path.endswith("__init__.py") else None
        return importlib.util.spec_from_file_location(name, self.path, loader=self, submodule_search_locations=package)

    def exec_module(self, module: Any) -> None:
        exec(compile(self.tree, self.path, "exec"), module.__dict__)


def _in_process(work: Callable[[], Any], limit: int = LIMIT) -> Any:
    """What ``work`` returns in a process of its own, as plain data; None: it died or took too long."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            signal.alarm(limit)
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, 1)
            os.dup2(null, 2)
            text = json.dumps(work())
        except BaseException:
            text = json.dumps(["stopped", traceback.format_exc()[-300:]])
        with os.fdopen(writing, "w") as pipe:
            pipe.write(text)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else None


def _solve(path: str, options: dict[str, Any], target: str) -> Any:
    """What becomes of an instance: an outcome, or status, objective and stages; the answer is written to ``target``."""
    from flowlex import model_for, read_instance
    from flowlex.models.model_base import UNPROVEN
    from flowlex.validation.certificates import CertificateError

    try:
        solution = model_for(read_instance(path), **options).solve()
    except CertificateError as error:
        return ["refused", str(error)[:200]]
    certificate = solution.certificate
    if UNPROVEN in solution.message or certificate is None or certificate.claim != solution.status.value:
        return ["lowered", solution.message[:200]]
    solution.save(target, force=True)
    stages = {name: str(value) for name, value in solution.stages.items()}
    return [solution.status.value, None if solution.objective is None else str(solution.objective), stages]


def _truths(folder: str) -> Any:
    """Make the instances, solve them, and list the functions that this calls."""
    from flowlex import generate
    from flowlex.instances.files import write_instance

    found = []
    for family, each in INSTANCES.items():
        for k, (generator, parameters, options) in enumerate(each):
            path = f"{folder}/{family}-{k}.json"
            write_instance(generate(generator, seed=k + 1, **parameters), path)
            called: dict[tuple[str, int, str], None] = {}

            def trace(frame: Any, event: str, argument: Any, called: Any = called) -> None:
                module = frame.f_globals.get("__name__", "")
                if event == "call" and module.startswith(PACKAGES) and frame.f_code.co_filename.endswith(".py"):
                    called[module, frame.f_code.co_firstlineno, frame.f_code.co_filename] = None

            sys.setprofile(trace)
            try:
                result = _solve(path, options, f"{path}.solution.json")
            finally:
                sys.setprofile(None)
            found.append([family, path, options, result, [*called]])
    return found


def _verify(path: str, solution: str) -> Any:
    from flowlex import verify

    return bool(verify(solution, path).ok)


def run(seeds: range, folder: str) -> Iterator[tuple[int, str, str, str, str]]:
    """Seed, family, place, fault and outcome of each seed.

    Raises `RuntimeError`: an instance cannot be solved without any fault.
    """
    truths = _in_process(lambda: _truths(folder), 10 * LIMIT)
    for truth in truths if truths and truths[0] != "stopped" else [["", "", {}, truths, []]]:
        if truth[3] is None or truth[3][0] not in ("optimal", "infeasible"):
            raise RuntimeError(f"without a fault, {truth[1]} ends {truth[3]}")
    for seed in seeds:
        yield seed, *_one(random.Random(seed), truths)


def _one(rng: random.Random, truths: list[Any]) -> tuple[str, str, str, str]:
    """Family, place, fault and outcome of one fault."""
    mutated = None
    while mutated is None:
        family = rng.choice([*INSTANCES])
        _, path, options, truth, called = rng.choice([t for t in truths if t[0] == family])
        module, line, file = rng.choice(called)
        mutated = changed_source(Path(file).read_text(), line, rng)
    (tree, what), answer = mutated, f"{path}.changed.json"

    def solve() -> Any:
        builtins.__stale__ = _stale  # type: ignore[attr-defined]
        sys.meta_path.insert(0, _Finder(module, tree, file))
        return _solve(path, options, answer)

    outcome = _in_process(solve) or ["stopped", "the process died or took too long"]
    kind = outcome[0]
    if kind not in ("stopped", "refused", "lowered"):
        # A model whose method fails solves its statement, which may have more stages.
        values = [(outcome[1], truth[1]), *((outcome[2].get(name), v) for name, v in truth[2].items())]
        right = outcome[0] == truth[0] and all(_same(mine, true) for mine, true in values)
        kind = "harmless" if right else "passed"
        if not right and _in_process(lambda: _verify(path, answer)) is not True:
            kind = "refused later"
        elif not right and outcome[0] == "feasible":  # which says nothing of a best answer
            kind = "lowered"
    return family, f"{module.removeprefix('flowlex.')}:{line}", what, kind


def _same(a: str | None, b: str | None) -> bool:
    if a is None or b is None:
        return a == b
    return abs(float(a) - float(b)) <= 1e-6 * (1 + abs(float(b)))


def main() -> int:
    """Print what becomes of each fault, and a table; 1 if a wrong answer passed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", nargs=2, type=int, default=(0, 300), metavar=("FIRST", "END"))
    chosen = parser.parse_args()
    for name in ("numpy", "scipy.optimize", "scipy.sparse", "pandas", "pydantic", "pulp", "highspy", "networkx"):
        __import__(name)  # once, for all processes that are forked
    counts: dict[str, Counter[str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for seed, family, place, what, kind in run(range(*chosen.seeds), folder):
            counts.setdefault(family, Counter())[kind] += 1
            print(f"{seed:5} {kind:14} {family:16} {place}  {what}", flush=True)
    kinds = ["stopped", "refused", "lowered", "harmless", "refused later", "passed"]
    print("\n| family | faults | " + " | ".join(kinds) + " |\n|" + " --- |" * (len(kinds) + 2))
    for family, found in counts.items():
        print(f"| {family} | {found.total()} | " + " | ".join(str(found[kind]) for kind in kinds) + " |")
    return int(any(found["passed"] for found in counts.values()))


if __name__ == "__main__":
    os.environ["NUMBA_DISABLE_JIT"] = "1"  # compiled code is kept by file, and would outlive the fault
    sys.exit(main())
