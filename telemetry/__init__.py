"""The node information service: collectors on the nodes, a data service, and a REST interface to read it.

Collecting is taken out of the scheduler: agents run registered *collectors* (executables that measure
something) and *processors* (executables that turn stored data into better data) on the nodes and write what
they print to the data service. A scheduler reads the last stored value and its age; it never waits for a
collection. Source: Hu, Zhu, Liu, Wang, *System information management for distributed deep-learning
inference*; the paper's Spring Boot and MySQL are FastAPI and SQLAlchemy here.

========================  =====================================================================
module                    what it holds
========================  =====================================================================
`schemas`                 the documents of the REST interface
`tables`                  what is stored, on SQLite or PostgreSQL
`database`                connections, transactions
`registry`, `reads`,      the methods on the tables, by purpose; a `store` has one of each
`writes`, `upkeep`,
`clock_marks`
`clock`                   the service's time, which never steps
`writer`                  the one thread that commits, many requests in one transaction
`security`                tokens and rights
`assignments`, `roster`   which node runs what, and which nodes live
`metrics`,                figures of the service, and what one client may cost
`service`                 what the routes share
`app`, `routes_*`         the REST interface and its documentation
`rights`, `answers`       who may ask, and how rows and refusals become answers
`client`                  calls it
`journal`                 an agent's buffer on disk
`runner`, `supervise`     runs one command: no shell, allow-list, limits of time and output, nothing left behind
`agent`                   slots, heartbeats, delivery
`collectors/`, `commands/` what the shipped collectors and processors do, and a file for each to run
`executor`                runs a program on each node's share of a partition, and times it
========================  =====================================================================

Needs the extra: ``pip install 'flowlex[telemetry]'``.
"""
