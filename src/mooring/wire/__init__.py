"""What travels: the schemas of API requests and answers, and the agent protocol. Written once; imports model only."""
