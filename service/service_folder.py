"""The folder of a service: ``service.json`` holds the options of its first start, which stay in force."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from flowlex.instances.file_storage import write_atomically
from flowlex.instances.files import read_instance
from flowlex.instances.flow import FlowInstance
from flowlex.instances.gpu_policy import GpuPolicy as Policy
from flowlex.models.flow.goals import preset
from flowlex.service.flow_scheduler_core import ClusterCore
from flowlex.service.gpu_rounds_core import GpuCore
from flowlex.service.measured_bandwidth import Bandwidths
from flowlex.service.scheduler_protocol import Core


def settled(folder: Path, kind: str, options: dict[str, Any], given: set[str]) -> dict[str, Any]:
    """Return the options of a service's first start; refuse an option that is given now and differs.

    ``given``: names of the options that a person gave now. Raises `ValueError`: the folder is of another kind, damaged,
    or was started with other options.
    """
    path = folder / "service.json"
    if not path.is_file():
        document = {"kind": kind, "options": options, "epoch_s": time.time()}
        write_atomically(path, json.dumps(document, indent=1).encode())
        return document
    try:
        document = json.loads(path.read_bytes())
        kept, known = document["options"], document["kind"]
        _ = float(document["epoch_s"])
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is damaged ({type(error).__name__}: {error}); restore the folder") from error
    if known != kind:
        raise ValueError(f"{folder} is the folder of a service {known!r}, not {kind!r}; name another folder")
    for name in sorted(given & options.keys()):
        if kept.get(name) != options[name]:
            shown = f"--{name.replace('_', '-')} {options[name]}"
            raise ValueError(f"{shown}: {folder} was begun with {kept.get(name)}, which holds; drop the option")
    return dict(document)


def cluster_loader(options: dict[str, Any], without: Collection[str] = ()) -> Callable[[Path | None], ClusterCore]:
    """Return a loader of a folder's live flow scheduler; ``without``: goals of a saved state to leave out."""
    goals = preset(options["goals"])
    cluster = None
    if options["cluster"] is not None:
        cluster = FlowInstance.model_validate(options["cluster"])
    rest = {name: options[name] for name in ("cost_limit", "scale", "lexicographic")}
    limit = options.get("step_limit_s")
    rest["solver"] = {} if limit is None else {"time_limit_s": limit}

    def load(state: Path | None) -> ClusterCore:
        return ClusterCore.load(state, goals, cluster, without=without, **rest)

    return load


def gpu_loader(options: dict[str, Any], without: Collection[str] = ()) -> Callable[[Path | None], GpuCore]:
    """Return a loader of a folder's rounds of GPU assignment; ``without`` is ignored, as these have no goals."""
    rates = {link: options[f"{link}_mb_per_s"] for link in ("disk", "rack", "between_racks")}

    def load(state: Path | None) -> GpuCore:
        core = GpuCore(Policy(options["policy"]), Bandwidths(rates), options["most_jobs"])
        return core if state is None else core.load(state)

    return load


def read_cluster(path: Path) -> dict[str, Any]:
    """A flow-scheduling instance as a document.

    Raises `ValueError`: the file holds another kind.
    """
    instance = read_instance(path)
    if not isinstance(instance, FlowInstance):
        raise ValueError(f"{path}: --cluster is a flow-scheduling instance, this is {instance.kind!r}")
    return instance.model_dump(mode="json")


def loader_of(folder: Path, without: Collection[str] = ()) -> Callable[[Path | None], Core]:
    """Return a loader of the core of a service's folder; ``without`` as in `cluster_loader`."""
    document = json.loads((folder / "service.json").read_bytes())
    return (cluster_loader if document["kind"] == "scheduler" else gpu_loader)(document["options"], without)
