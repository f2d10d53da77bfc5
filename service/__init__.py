"""Schedulers as services: a small HTTP interface, and a write-ahead log that keeps what was acknowledged.

===========================  ================================================================================
`journal`                    the log on disk: lines with a checksum, snapshots, what a kill leaves behind
`worker`                     the one thread that changes state: many requests, one flush to disk
`core`                       what a scheduler must do to be served
`cluster`                    the live flow scheduler
`gpu`                        rounds of GPU assignment; `bandwidth` estimates links from reported transfers
`routes`                     what each of them answers over HTTP
`app`                        the application: tokens, limits and pages are those of `flowlex.telemetry`
===========================  ================================================================================
"""

from __future__ import annotations

__all__: list[str] = []
