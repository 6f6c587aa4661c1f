"""The small process that runs one task and outlives the agent: it starts, restarts, stops, logs and stores the exit.

Standard library only and started without site packages, so that it is quick and light: one runs beside every task.
It imports nothing else of Mooring; the agent speaks to it through the files of the task's folder and one signal.
"""
