"""The leader: its campaign, and the supervised control loops that it runs."""
