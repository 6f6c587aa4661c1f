"""Tasks as containers of a Docker-compatible engine on the node.

`specification` and `course` are pure: what the engine is told, and what comes next for a task. `engine` speaks with the
engine, `runtime` brings them together.
"""
