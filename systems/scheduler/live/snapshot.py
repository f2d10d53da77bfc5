"""Save and load a flow scheduler, with its cluster, clock and present schedule.

The file is compressed: a line of JSON with the fields of `FrozenState` and the goals by module, name and fields, then
the `exact_state`. The code that wrote a file continues exactly; another version rebuilds the network from the line of
JSON, and its next step keeps the present schedule among equal ones. Loading a file imports the modules of its goals, so
load only files that you trust.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import pickle
import zlib
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from flowlex.formulations.gc_pause import collector_paused
from flowlex.instances.file_storage import write_atomically
from flowlex.instances.flow import FlowInstance
from flowlex.instances.instance_base import InstanceError
from flowlex.models.flow.goals import Goal
from flowlex.systems.scheduler.live import exact_state
from flowlex.systems.scheduler.live.frozen_state import FrozenState
from flowlex.systems.scheduler.live.goal_document import AbsentGoalError, described, revived
from flowlex.systems.scheduler.live.scheduler import FlowScheduler
from flowlex.systems.scheduler.warm_network.network_session import NoFlowError

#: Format 6 had no exact state.
_FORMAT, _OLDEST = 7, 6
_NAME = "flowlex flow scheduler "


def save_scheduler(scheduler: FlowScheduler, path: str | Path) -> None:
    """Write the whole state to ``path``, atomically."""
    write_atomically(path, saved_scheduler(scheduler))


def saved_scheduler(scheduler: FlowScheduler) -> bytes:
    """Return the whole state."""
    frozen, state = scheduler.frozen(), scheduler.state
    head = {"format": f"{_NAME}{_FORMAT}", "code": exact_state.fingerprint(state.goals)}
    document = {**head, "goals": [described(goal) for goal in frozen.goals], **frozen.to_dict()}
    return gzip.compress(json.dumps(document).encode() + b"\n" + exact_state.write(state), 1, mtime=0)


def load_scheduler(
    path: str | Path, goals: Iterable[Goal] | None = None, *, certify: bool = True, without: Collection[str] = ()
) -> FlowScheduler:
    """Load a saved scheduler.

    ``goals``: the goals with which it was saved, if a file cannot store them; None: read them from the file.
    ``without``: goals to drop, as ``module:name``. Raises `InstanceError` if the file cannot be read, is damaged, was
    saved with other goals, or if the code of a goal is missing.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise InstanceError(f"cannot be read: {error.strerror or error}", path=path) from error
    return restored_scheduler(data, goals, certify=certify, without=without, path=path)


def restored_scheduler(
    data: bytes,
    goals: Iterable[Goal] | None = None,
    *,
    certify: bool = True,
    without: Collection[str] = (),
    path: str | Path = "state of the scheduler",
) -> FlowScheduler:
    """Return the scheduler of `saved_scheduler`; as `load_scheduler`. ``path``: names it in messages."""
    try:
        with collector_paused():
            line, _, exact = gzip.decompress(data).partition(b"\n")
            document = json.loads(line)
            _check_format(document["format"], path)
            chosen = _goals(document["goals"], None if goals is None else tuple(goals), without, path)
            same = exact and len(chosen) == len(document["goals"])
            if same and document["code"] == exact_state.fingerprint(chosen):
                with contextlib.suppress(pickle.UnpicklingError):  # goals of other packages left objects of their own
                    return FlowScheduler.continued(exact_state.read(exact, chosen), certify=certify)
            return _made(document, chosen, certify)
    except gzip.BadGzipFile as error:
        raise InstanceError(f"damaged state file, or one of an earlier version ({error})", path=path) from error
    except (EOFError, zlib.error, ValueError, TypeError, LookupError, AttributeError) as error:
        if isinstance(error, InstanceError):
            raise
        raise InstanceError(f"damaged state file ({type(error).__name__}: {error})", path=path) from error


def _check_format(found: str, path: str | Path) -> None:
    number = found.removeprefix(_NAME)
    if not found.startswith(_NAME) or not number.isdigit() or int(number) < _OLDEST:
        raise InstanceError(f"format {found!r}; expected {_NAME}{_OLDEST} to {_FORMAT}", path=path)
    if int(number) > _FORMAT:
        raise InstanceError(f"format {found!r} is newer than {_NAME}{_FORMAT}; install a newer flowlex", path=path)


def _goals(
    saved: list[Mapping[str, Any]], given: tuple[Goal, ...] | None, without: Collection[str], path: str | Path
) -> tuple[Goal, ...]:
    """Return the goals with which a state was saved, except those in ``without``."""
    names = [str(each["type"]) for each in saved]
    kept = [each for each, name in zip(saved, names, strict=True) if name not in without]
    if given is None:
        try:
            return tuple(revived(each) for each in kept)
        except AbsentGoalError as error:
            raise InstanceError(f"{error}; or go on without it: without={error.goal!r}", path=path) from error
    if [described(goal) for goal in given] != kept:
        raise InstanceError(f"it was saved with the goals {', '.join(names) or 'none'}; pass the same", path=path)
    return given


def _made(document: Mapping[str, Any], goals: tuple[Goal, ...], certify: bool) -> FlowScheduler:
    frozen = FrozenState.of_dict(document, goals)
    empty = FlowInstance(name=frozen.name, machines=(), queues=frozen.queues)
    scheduler = FlowScheduler(empty, goals, certify=certify, **frozen.options)
    frozen.refill(scheduler.state, known=True)
    with contextlib.suppress(NoFlowError):  # the next step raises it
        scheduler.prepare()
        scheduler.state.session.solve()  # so that queries work before the next step
    return scheduler
