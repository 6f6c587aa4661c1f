"""Timeslots, and rules for recurring ones."""
