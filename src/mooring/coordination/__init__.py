"""Leader election with fencing terms, and signals: in one process, through PostgreSQL, or through etcd."""
