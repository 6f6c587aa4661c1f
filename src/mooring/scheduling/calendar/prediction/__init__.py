"""Run times predicted from earlier runs, and the correction of predictions that were too short.

Pure: ended runs in, seconds out. Imports the model only.
"""
