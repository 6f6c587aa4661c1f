"""Use cases behind the API: submission, deployments, bookings, administration and queries.

Imports `store`, `wire` and `model`; queries also import `mirror` and `scheduling`.
"""
