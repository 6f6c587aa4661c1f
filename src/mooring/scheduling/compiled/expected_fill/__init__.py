"""The rule of expected fill as kernels and the arrays that they work on; `mooring.scheduling.expected_fill` defines it.

Imports the kernels' common layout and the definition's demand, no plugin.
"""
