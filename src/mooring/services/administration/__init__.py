"""Administration of nodes, pools, quotas, fair-share weights and volumes, and the audit."""
