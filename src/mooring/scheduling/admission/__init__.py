"""Admission: may a workload be handed in, and may it run now? One validator a file.

Validators read a context that was loaded before and raise; nothing here reads a store or a clock.
"""

from mooring.model.admission import AdmissionError, Awaits, Checked
from mooring.scheduling.admission.admission import Admission, AdmissionRefused, Rejection, ValidatorFailed
from mooring.scheduling.admission.context import AdmissionContext, Pending
from mooring.scheduling.admission.validators import BUILT_IN_VALIDATORS, Validator, discovered_validators

__all__ = [
    "BUILT_IN_VALIDATORS",
    "Admission",
    "AdmissionContext",
    "AdmissionError",
    "AdmissionRefused",
    "Awaits",
    "Checked",
    "Pending",
    "Rejection",
    "Validator",
    "ValidatorFailed",
    "discovered_validators",
]
