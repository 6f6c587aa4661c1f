"""The compiled engine: kernels, their array layout and cache, and the lowering of plugins to kernel terms.

Imports no plugin.
"""
