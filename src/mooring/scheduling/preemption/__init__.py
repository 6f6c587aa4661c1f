"""Preemption: victim search, budgets, and the reclaim of lent guarantees."""
