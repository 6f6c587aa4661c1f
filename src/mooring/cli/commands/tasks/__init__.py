"""Commands for running tasks: output, access, files, ports and usage."""
