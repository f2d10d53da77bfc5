"""The price of an explanation by two full solves, in a process of its own that decisions never wait for."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from dataclasses import replace

from flowlex.models.flow.live.explain import Explanation
from flowlex.models.flow.live.frozen_state import FrozenState
from flowlex.models.flow.live.full_solve import priced

__all__ = ["priced_apart"]

_MOST_TASKS = 5_000
_SECONDS = 20.0
_INSTEAD = "; ask `flowlex explain` of a saved state, which takes its time"


def priced_apart(why: Explanation, frozen: FrozenState, seconds: float = _SECONDS) -> Explanation:
    """An explanation with its price, or with what kept the service from finding it.

    Parameters
    ----------
    seconds
        The process is ended after so many.
    """
    count = sum(len(tasks) for _, _, tasks in frozen.jobs)
    if count > _MOST_TASKS:
        return replace(why, unpriced=f"the service finds prices of at most {_MOST_TASKS} tasks, here {count}{_INSTEAD}")
    try:
        given = pickle.dumps(sys.path) + pickle.dumps((why, frozen))
        command = [sys.executable, "-m", "flowlex.service.price_process"]
        done = subprocess.run(command, input=given, capture_output=True, timeout=seconds, check=True)
    except subprocess.TimeoutExpired:
        return replace(why, unpriced=f"the two full solves take more than {seconds:g} s{_INSTEAD}")
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        return replace(why, unpriced=f"a goal cannot be handed to another process ({error}){_INSTEAD}")
    except subprocess.CalledProcessError as error:
        last = error.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        return replace(why, unpriced=f"the process of the two full solves failed ({last}){_INSTEAD}")
    found = pickle.loads(done.stdout)
    assert isinstance(found, Explanation)
    return found


def _main() -> None:
    answer = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a goal or a solver prints is no part of the answer
    os.nice(10)
    sys.path[:] = pickle.load(sys.stdin.buffer)  # goals may lie where only the service looks
    with answer:
        pickle.dump(priced(*pickle.load(sys.stdin.buffer)), answer)


if __name__ == "__main__":
    _main()
