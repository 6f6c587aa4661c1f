"""The store's state as values of the scheduler, updated from the event feed. Imports scheduling, store and model."""
