"""The node information service: collectors on the nodes, a data service, and a REST interface to read it.

Collecting is taken out of the scheduler: agents run registered *collectors* (executables that measure
something) and *processors* (executables that turn stored data into better data) on the nodes and write what
they print to the data service. A scheduler reads the last stored value and its age; it never waits for a
collection. Source: Hu, Zhu, Liu, Wang, *System information management for distributed deep-learning
inference*; the paper's Spring Boot and MySQL are FastAPI and SQLAlchemy here.

========================  =====================================================================
module                    what it holds
========================  =====================================================================
`request_documents`       the documents of the REST interface
`database_tables`         what is stored, on SQLite or PostgreSQL
`database`                connections, transactions
`store`                   the methods on the tables by purpose: `registrations`, `read_queries`,
                          `sample_writes`, `retention`, `stored_clock`
`service_clock`           the service's time, which never steps
`commit_thread`           the one thread that commits, many requests in one transaction
`tokens_and_rights`       tokens and rights
`command_assignments`     which node runs what; `known_nodes`: which nodes live
`request_limits`          what one client may cost; `connection_limits`: what one connection may
`service_context`         what the routes share
`rest_app`, `routes_*`    the REST interface and its documentation
`access_rights`           who may ask; `response_models`: how rows and refusals become answers
`http_client`             calls it
`agent_buffer`            an agent's samples on disk until the service has them
`command_runner`          runs one command: no shell, allow-list, limits of time and output;
                          `subprocess_supervisor` leaves nothing behind
`node_agent`              slots, heartbeats, delivery
`collectors/`             what the shipped commands do; ``commands/`` has a file for each to run
========================  =====================================================================

Needs the extra: ``pip install 'flowlex[telemetry]'``.
"""
