"""Clients of flowlex's services."""

from flowlex.systems.scheduler.client import Refused, Scheduler, Unreachable

__all__ = ["Refused", "Scheduler", "Unreachable"]
