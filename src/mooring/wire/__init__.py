"""Wire schemas: API requests and responses, and the agent protocol. Imports `model` only."""
