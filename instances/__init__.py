"""What is to be scheduled: schema, files, generators, importers (imports nothing else of flowlex)."""

from flowlex.instances.base import Instance, InstanceError
from flowlex.instances.files import json_schema, read_instance, write_instance
from flowlex.instances.gpu import GpuInstance

__all__ = ["GpuInstance", "Instance", "InstanceError", "json_schema", "read_instance", "write_instance"]
