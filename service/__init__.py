"""Schedulers as services: a small HTTP interface, and a write-ahead log of all acknowledged requests.

=======================  =========================================================================================
`write_ahead_log`        the log on disk: lines with a checksum, snapshots, recovery after a kill
`decision_thread`        the one thread that changes state: many requests, one flush to disk
`scheduler_protocol`     what a scheduler must offer to be served
`flow_scheduler_core`    the live flow scheduler
`gpu_rounds_core`        rounds of GPU assignment; `measured_bandwidth` estimates links from reported transfers
`scheduler_routes`       the HTTP routes of both
`rest_app`               the application; tokens, limits and pages are those of `flowlex.telemetry`
=======================  =========================================================================================
"""

from __future__ import annotations

__all__: list[str] = []
