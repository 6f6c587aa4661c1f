"""The layers around every request: HTTP server limits, request ids, load shedding, and the mapping of errors."""
