"""What is to be scheduled: schema, files, generators, importers (imports nothing else of flowlex).

Importing any module of this room runs this file first, so that all our kinds and formats are registered; those of
other packages are found when they are asked for, see `flowlex.instances.extensions`.
"""

from flowlex.instances.allocation import AllocationInstance
from flowlex.instances.base import Instance, InstanceError
from flowlex.instances.cluster import ClusterWorkload
from flowlex.instances.dimacs import format_dimacs, parse_dimacs
from flowlex.instances.extensions import kinds
from flowlex.instances.files import json_schema, read_instance, write_instance
from flowlex.instances.flow import FlowInstance
from flowlex.instances.generators import GENERATORS, generate
from flowlex.instances.gpu import GpuInstance
from flowlex.instances.importers.coflow import read_coflow_trace
from flowlex.instances.importers.gavel import read_gavel
from flowlex.instances.importers.openb import read_openb
from flowlex.instances.importers.telemetry import from_telemetry
from flowlex.instances.jit import JitInstance
from flowlex.instances.load import LoadPartitionInstance
from flowlex.instances.network import NetworkInstance
from flowlex.instances.pods import PodInstance
from flowlex.instances.scenario import Scenario

__all__ = [
    "GENERATORS",
    "AllocationInstance",
    "ClusterWorkload",
    "FlowInstance",
    "GpuInstance",
    "Instance",
    "InstanceError",
    "JitInstance",
    "LoadPartitionInstance",
    "NetworkInstance",
    "PodInstance",
    "Scenario",
    "format_dimacs",
    "from_telemetry",
    "generate",
    "json_schema",
    "kinds",
    "parse_dimacs",
    "read_coflow_trace",
    "read_gavel",
    "read_instance",
    "read_openb",
    "write_instance",
]
