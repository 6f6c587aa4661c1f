"""Leadership with fencing terms, and the signals that wake. In one process today; imports store and model."""
