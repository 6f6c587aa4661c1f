"""Replay of workload traces through the production scheduler, with a virtual clock.

It imports the model, the core and the extensions. It reads no database and calls no server.
"""
