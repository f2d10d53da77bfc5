"""Save and load a flow scheduler, with its cluster, clock and present schedule.

The file is compressed JSON with the fields of `FrozenState` and the goals by module, name and fields. Loading
rebuilds the network; the next step keeps the present schedule among equal ones. Loading a file imports the modules of
its goals, so load only files that you trust.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import zlib
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from flowlex.formulations.sessions.live_network import NoFlowError
from flowlex.instances.file_storage import write_atomically
from flowlex.instances.flow import FlowInstance
from flowlex.instances.instance_base import InstanceError
from flowlex.models.flow.garbage_collection import collector_paused
from flowlex.models.flow.goals import Goal
from flowlex.models.flow.goals.goal_document import AbsentGoalError, described, revived
from flowlex.systems.scheduler.live.frozen_state import FrozenState
from flowlex.systems.scheduler.live.scheduler import FlowScheduler

_FORMAT = "flowlex flow scheduler 6"


def save_scheduler(scheduler: FlowScheduler, path: str | Path) -> None:
    """Write the whole state to ``path``, atomically."""
    frozen = scheduler.frozen()
    document = {"format": _FORMAT, "goals": [described(goal) for goal in frozen.goals], **frozen.to_dict()}
    write_atomically(path, gzip.compress(json.dumps(document).encode(), 1, mtime=0))


def load_scheduler(
    path: str | Path, goals: Iterable[Goal] | None = None, *, certify: bool = True, without: Collection[str] = ()
) -> FlowScheduler:
    """Load a saved scheduler.

    ``goals``: the goals with which it was saved, if a file cannot store them; None: read them from the file.
    ``without``: goals to drop, as ``module:name``. Raises `InstanceError` if the file cannot be read, is damaged, was
    saved with other goals, or if the code of a goal is missing.
    """
    try:
        with collector_paused():
            document = json.loads(gzip.decompress(Path(path).read_bytes()))
            if document["format"] != _FORMAT:
                raise InstanceError(f"format {document['format']!r} is not {_FORMAT!r}", path=path)
            chosen = _goals(document["goals"], None if goals is None else tuple(goals), without, path)
            return _made(document, chosen, certify)
    except gzip.BadGzipFile as error:
        raise InstanceError(f"damaged state file, or one of an earlier version ({error})", path=path) from error
    except OSError as error:
        raise InstanceError(f"cannot be read: {error.strerror or error}", path=path) from error
    except (EOFError, zlib.error, ValueError, TypeError, LookupError, AttributeError) as error:
        if isinstance(error, InstanceError):
            raise
        raise InstanceError(f"damaged state file ({type(error).__name__}: {error})", path=path) from error


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
    frozen.refill(scheduler.state)
    with contextlib.suppress(NoFlowError):  # the next step raises it
        scheduler.prepare()
        scheduler.state.session.solve()  # so that queries work before the next step
    return scheduler
