"""Tasks as containers of a Docker-compatible engine on the node.

`specification` (requests to the engine) and `state_machine` (the next steps of a task) are pure. `engine` talks to the
engine, `task_reconciler` runs one task, and `runtime` combines them.
"""
