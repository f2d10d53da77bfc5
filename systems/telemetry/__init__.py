"""The node information service: collectors on the nodes, a data service, and a REST interface to read it.

Collection is separate from the scheduler: agents run registered *collectors* (executables that measure
something) and *processors* (executables that derive data from stored data) on the nodes and write their
output to the data service. A scheduler reads the last stored value and its age; it never waits for a
collection. Source: Hu, Zhu, Liu, Wang, *System information management for distributed deep-learning
inference*; the paper's Spring Boot and MySQL are FastAPI and SQLAlchemy here.

========================  =====================================================================
module                    what it holds
========================  =====================================================================
`request_documents`       the documents of the REST interface
`database_tables`         what is stored, on SQLite or PostgreSQL
`database`                connections, transactions
`store`                   the operations on the tables: `registrations`, `read_queries`,
                          `sample_writes`, `retention`, `stored_clock`
`service_clock`           the service's time, which never steps
`commit_thread`           the one thread that commits, many requests in one transaction
`tokens_and_rights`       tokens and rights
`command_assignments`     which node runs what; `known_nodes`: which nodes are alive
`request_limits`          limits of one client; `connection_limits`: limits of one connection
`service_context`         shared state of the routes
`rest_app`, `routes_*`    the REST interface and its documentation
`access_rights`           access control; `response_models`: responses from rows and errors
`http_client`             the client
`agent_buffer`            an agent's samples on disk until the service has them
`command_runner`          runs one command: no shell, allow-list, limits of time and output;
                          `subprocess_supervisor` ends its processes
`node_agent`              slots, heartbeats, delivery
`collectors/`             functions of the shipped commands; ``commands/`` runs them
========================  =====================================================================

Needs the extra: ``pip install 'flowlex[telemetry]'``.
"""
