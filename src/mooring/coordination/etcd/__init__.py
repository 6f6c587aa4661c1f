"""etcd: its protocol, a client, and the election and signals built on it."""
