"""Events that nodes and jobs report to the rounds of GPU assignment."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from flowlex.instances.gpu import Job, Node
from flowlex.instances.instance_base import Name, Part, Positive


class NodeReport(Part):
    """A node with its GPUs; a task on a GPU that is gone or now too small waits again."""

    event: Literal["node"] = "node"
    node: Node


class NodeGone(Part):
    """A node has left or failed; its tasks wait again."""

    event: Literal["node_gone"] = "node_gone"
    node: Name


class JobPart(Part):
    """A job's part of the network: its tasks, their needs, and the locations of their data.

    A later part of the same job replaces its waiting tasks; running tasks stay.
    """

    event: Literal["job"] = "job"
    job: Job


class Withdrawn(Part):
    """A job is withdrawn with all its tasks."""

    event: Literal["withdrawn"] = "withdrawn"
    job: Name


class TaskEnd(Part):
    """A running task has ended; one that failed waits again."""

    event: Literal["task_end"] = "task_end"
    task: Name
    failed: bool = False


class Transfer(Part):
    """A task transferred data: from its node's disk (source equals target), within a rack, or between racks."""

    event: Literal["transfer"] = "transfer"
    source: Name
    target: Name
    size_mb: Positive
    seconds: Positive


GpuEvent = Annotated[NodeReport | NodeGone | JobPart | Withdrawn | TaskEnd | Transfer, Field(discriminator="event")]
GPU_EVENT: TypeAdapter[NodeReport | NodeGone | JobPart | Withdrawn | TaskEnd | Transfer] = TypeAdapter(GpuEvent)
