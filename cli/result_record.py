"""The record of one instance, as plain JSON with always the same keys, and how a worker sends it.

===============  =====================================================================================
key              value
===============  =====================================================================================
``instance``     the file, as it was named
``name``         the instance's own name; null when the file could not be read
``kind``         kind of instance; null when the file could not be read
``model``        name of the model
``engine``       ``pulp``, ``highs`` or ``network``
``status``       ``optimal``, ``feasible``, ``infeasible``, ``unbounded``, ``time_limit`` or ``error``;
                 of simulations ``simulated``, of experiments ``measured``
``objective``    number or null
``bound``        proven bound on the objective, or null
``gap``          relative gap, or null
``certificate``  ``ok`` (null when there is nothing to certify), ``claim``, ``exact``, ``tolerance``, the number of
                 ``checks``, and those that ``failed``
``seconds``      ``load``, ``compile``, ``solve``, ``check``; null where it was not reached
``message``      what the solver or the error says
``explanation``  why there is no answer: ``message``, ``constraints``, ``bounds``, ``nodes``; or null
``metrics``      the figures of the model's answer
``comparison``   with ``--compare``: ``rows`` or ``message``
``solution``     name of the solution file in the folder of results, or null
``cut_off``      what ended solving with the best answer so far: ``time limit``, ``memory limit``, ``killed``; or null
``options``      options that may change the answer
``input``        path, size and time of change of the file
===============  =====================================================================================
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, BinaryIO

from flowlex.instances.file_storage import json_value

if TYPE_CHECKING:
    from flowlex.models.model_base import Solution


#: Statuses that come with an answer.
SOLVED = ("optimal", "feasible", "simulated", "measured")


#: The keys of a record before it is finished, in their order.
_KEYS = (
    *("instance", "name", "kind", "model", "engine", "status", "objective", "bound", "gap", "certificate", "seconds"),
    *("message", "explanation", "metrics", "solution", "cut_off"),
)


def blank(instance: str, engine: str) -> dict[str, Any]:
    """Return an initial record."""
    return dict.fromkeys(_KEYS) | {
        "instance": instance,
        "engine": engine,
        "status": "error",
        "certificate": {"ok": None, "claim": None, "checks": 0, "failed": []},
        "seconds": dict.fromkeys(("load", "compile", "solve", "check")),
        "message": "",
        "metrics": {},
    }


def cut_off(answer: dict[str, Any], by: str, message: str) -> dict[str, Any]:
    """Return the record of the best answer so far of an instance whose solving was cut off."""
    return answer | {"cut_off": by, "message": f"{message.rstrip('.')}; this is the best answer so far"}


def fill(record: dict[str, Any], solution: Solution, building_s: float) -> None:
    """Add a solution to the record; ``building_s`` is the time of building the model before `solve`."""
    seconds = solution.seconds
    record["seconds"] |= {
        "compile": building_s + seconds.compile,
        "solve": seconds.solve,
        "check": seconds.check,
    }
    record |= {
        "engine": solution.engine,
        "status": str(solution.status),
        "objective": json_value(solution.objective),
        "bound": json_value(solution.bound),
        "gap": json_value(solution.gap),
        "message": solution.message,
        "metrics": json_value(solution.metrics()) if solution.status.has_answer else {},
    }
    if solution.certificate is not None:
        certificate = json_value(solution.certificate.to_dict())
        failed = [check for check in certificate["checks"] if not check["ok"]]
        record["certificate"] = {**certificate, "checks": len(certificate["checks"]), "failed": failed}
    if solution.infeasibility is not None:
        record["explanation"] = json_value(vars(solution.infeasibility))


class Channel:
    """Lines of JSON from a worker process to its parent."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def send(self, event: str, **content: Any) -> None:
        """Send one line."""
        self._stream.write(json.dumps({"event": event, **content}, allow_nan=False).encode() + b"\n")
        self._stream.flush()
