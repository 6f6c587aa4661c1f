"""Hypothetical questions: the state of a server continued twice by the simulation, as it is and with changes."""
