"""Clients of flowlex's services."""

from flowlex.service.client import Refused, Scheduler, Unreachable

__all__ = ["Refused", "Scheduler", "Unreachable"]
