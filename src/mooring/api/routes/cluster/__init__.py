"""Routes of the cluster: nodes, pools, scaling, the event feed, the timeline and the server itself."""
