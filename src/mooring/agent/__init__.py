"""What runs on a node: it joins, beats, and makes the node's tasks what the server asked for, through runtimes.

It knows the wire and the model, never the store or the core: all that it needs of the server comes over one outgoing
stream. Tasks run under supervisors of their own (`agent/supervisor/`), so that they outlive the agent.
"""
