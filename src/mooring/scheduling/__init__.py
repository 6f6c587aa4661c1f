"""The pure core: a cluster and waiting workloads in, decisions out.

No I/O and no clock of its own; the time is handed in. Imports `model` and NumPy, nothing else of Mooring.
"""

from mooring.scheduling.columns import Cluster
from mooring.scheduling.profiles import Profile, Registry
from mooring.scheduling.scheduler import Pass, Scheduler

__all__ = ["Cluster", "Pass", "Profile", "Registry", "Scheduler"]
