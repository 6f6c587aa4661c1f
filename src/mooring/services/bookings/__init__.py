"""Timeslots, labs and maintenance windows as users request them."""
