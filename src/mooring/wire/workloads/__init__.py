"""Schemas of submitted work: workloads, sessions, containers, placement, bookings, files."""
