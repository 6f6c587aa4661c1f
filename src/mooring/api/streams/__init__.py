"""Connections that stay open: exec, attach, port forwarding, output, event streams and long polls."""
