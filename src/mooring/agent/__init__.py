"""The agent of a node: it joins, sends heartbeats, and brings the node's tasks to their desired state through runtimes.

It imports the wire and the model, never the store or the core: all data from the server comes over one outgoing
stream. Process tasks run under their own supervisors (`runtimes/process/supervisor/`), so that they outlive the agent.
"""
