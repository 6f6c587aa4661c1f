"""Domain types: quantities, slots, nodes, workloads, tenants, statuses and their legal transitions, events.

Frozen data and free functions; no I/O and no clock. Imports nothing of the other rooms.
"""
