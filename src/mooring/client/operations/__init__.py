"""Operations on users, workloads, sessions, nodes, pools, quotas and servers."""
