"""Leadership with fencing terms, and the signals that wake: in one process, through PostgreSQL, or through etcd."""
