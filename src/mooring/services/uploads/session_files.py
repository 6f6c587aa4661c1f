"""Files of a request: an upload of its project, or a folder of the submitter's machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from uuid import UUID

from mooring.model.errors import InvalidInput, MooringError
from mooring.model.tenancy.access import not_there
from mooring.model.workloads.containers import LocalFolder, TaskTemplate
from mooring.model.workloads.paths import is_within
from mooring.model.workloads.workload import Kind
from mooring.store.workloads.new_workloads import NewWorkload
from mooring.wire.workloads.uploads import WORKSPACE, FilesRequest


def with_files(template: TaskTemplate, files: FilesRequest | None, kind: Kind) -> TaskTemplate:
    """Return the template with the files that its tasks get; raise InvalidInput if they cannot have them."""
    if files is None:
        return template
    if kind is not Kind.SESSION:
        raise InvalidInput("only sessions can have uploaded files; put those of a deployment into its image")
    if (files.upload is None) == (files.local is None):
        raise InvalidInput("files: give either an upload or a local folder")
    if files.local is None:
        _check_mounts(template)
        return replace(template, upload=files.upload)
    if template.runtime != "process":
        raise InvalidInput(
            "a container cannot use the local folder directly; upload it instead", code="local-folder-refused"
        )
    return replace(template, local_folder=LocalFolder(**files.local.model_dump()))


def refused(new: NewWorkload, usable: Mapping[UUID, UUID]) -> MooringError | None:
    """Return the error for an upload that its project does not have in full; `usable`: uploads and their projects."""
    upload = new.template.upload
    if upload is None or usable.get(upload) == new.principal.project_id:
        return None
    return not_there(f"complete upload {upload} in this project; upload the folder again")


def _check_mounts(template: TaskTemplate) -> None:
    for container in template.all_containers if template.runtime == "container" else ():
        for mount in container.mounts:
            if is_within(mount.path, WORKSPACE) or is_within(WORKSPACE, mount.path):
                raise InvalidInput(
                    f"{mount.path} cannot be a mount of a task with uploaded files, which are in {WORKSPACE}",
                    code="doubled-mount",
                )
