"""Admission: validators that decide whether a workload may be submitted and whether it may run now.

Validators read a context that was loaded before, and raise to reject; nothing here reads a store or a clock.
"""

from mooring.model.tenancy.admission import AdmissionError, Awaits, Checked
from mooring.scheduling.admission.admission import Admission, AdmissionRefused, Rejection, ValidatorFailed
from mooring.scheduling.admission.context import AdmissionContext, Pending
from mooring.scheduling.admission.registry import BUILT_IN_VALIDATORS, Validator, discovered_validators

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
