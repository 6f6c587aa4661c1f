"""etcd: its protocol, a client for it, and what Mooring does with it."""
