"""The state of the control plane itself: leader terms, the event feed, servers, loops and background tasks.

Imports the store's database layer and the model only.
"""
