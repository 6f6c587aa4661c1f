"""The supervisor of a process task, which outlives the agent: it starts, restarts, stops, logs and stores the exit.

It uses only the standard library and no site packages, to start fast and stay small: there is one per task.
It imports nothing else of Mooring; the agent controls it through the files of the task's folder and one signal.
"""
