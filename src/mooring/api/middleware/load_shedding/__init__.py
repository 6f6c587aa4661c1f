"""Load shedding for one API process, in the terms of Kubernetes' API Priority and Fairness.

Every request belongs to a flow (its user, or its address while no credential of it is verified). Rates bound a flow
over time, fair queues share the seats between flows, byte budgets bound what is buffered. Imports nothing of the API
but the client's address, so that every part of the API can use it.
"""
