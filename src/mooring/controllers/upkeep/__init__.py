"""Periodic upkeep: accounting, audit and retention."""
