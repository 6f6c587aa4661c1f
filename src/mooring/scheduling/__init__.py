"""The pure scheduling core: a cluster and pending workloads in, decisions out.

It does no I/O and has no clock; the time is passed in. It imports `model` and NumPy, and nothing else of Mooring.
"""

from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.plugins.profiles import Profile, Registry
from mooring.scheduling.scheduler import Pass, Scheduler

__all__ = ["Cluster", "Pass", "Profile", "Registry", "Scheduler"]
