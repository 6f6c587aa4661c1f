"""Objects that route modules share: found by id or name for a principal who may see them, and parameters of lists."""
