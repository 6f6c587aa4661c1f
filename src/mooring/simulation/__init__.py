"""Replay of workloads through the production scheduler, with a virtual clock.

It imports the model, the core, wire schemas and the extensions. It reads no database and calls no server.
"""
