"""Expected fill: a rule for packing devices that asks what each node can still take of the demand to come.

The definition in plain Python. The compiled engine has the same rule as kernels, compared by a property test.
"""
