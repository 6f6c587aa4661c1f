"""The agent's connection to a server: join, one stream, reports that are repeated until they are durable."""
