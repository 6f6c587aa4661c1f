"""Changes of a running deployment: update, rollback, pause and resume, checked like a submission."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

from mooring.clock import now
from mooring.mirror.validators import installed_validators
from mooring.model.errors import Conflict, InvalidInput, NotFound
from mooring.model.resources.task_resources import requests_of
from mooring.model.tenancy.tenants import Principal
from mooring.model.workloads.containers import TaskTemplate, VolumeKind
from mooring.model.workloads.lifetime.rollouts import Phase, Rollout, bounds
from mooring.model.workloads.workload import Kind
from mooring.scheduling.admission import Validator
from mooring.security.encryption import SecretBox
from mooring.services.admin_recording import record
from mooring.services.deployments.scaling import check_scale_up
from mooring.services.deployments.updates import cause_of, rollout_of, updated
from mooring.services.submission import secrets
from mooring.services.submission.admission import open_gate
from mooring.services.submission.containers import with_default_requests
from mooring.services.submission.context_loader import ContextLoader
from mooring.services.submission.hooks import Hooks
from mooring.services.submission.pending_tasks import PendingTasks
from mooring.services.submission.reservation_access import check_fits
from mooring.services.submission.rules import check
from mooring.services.submission.translation import check_devices, images_of
from mooring.store.commit.commit_logging import log_applied
from mooring.store.commit.status_changes import Applied
from mooring.store.core.engine import Connection, Database
from mooring.store.core.ids import new_id
from mooring.store.reservations import timeslots
from mooring.store.workloads import revisions, rollouts, templates
from mooring.store.workloads.new_workloads import NewWorkload
from mooring.store.workloads.revisions import Present
from mooring.store.workloads.rollouts import Deployment
from mooring.wire.workloads.rollouts import RolloutRequest, UpdateRequest


class DeploymentAdmin:
    def __init__(
        self,
        database: Database,
        hooks: Hooks | None = None,
        validators: Sequence[Validator] = (),
        secret_box: SecretBox | None = None,
    ) -> None:
        """Without `hooks` and `validators` those that are installed are asked; with `secret_box` secrets are tried."""
        self._database = database
        self._secret_box = secret_box
        self._hooks = Hooks.discovered() if hooks is None else hooks
        self._validators = validators or installed_validators()
        self._context_loader = ContextLoader(database)

    async def update(self, principal: Principal, workload_id: UUID, asked: UpdateRequest) -> None:
        """Change the template, the number of replicas, or the rollout policy."""
        present = await self._present(workload_id)
        replicas = asked.replicas or present.workload.replicas
        template = updated(present.workload.template, asked, replicas)
        if asked.template is not None:
            template = await self._with_default_requests(principal, present.workload, template, replicas)
        await self._change(principal, present, template, cause_of(asked), asked.replicas, asked.rollout)

    async def roll_back(self, principal: Principal, workload_id: UUID, number: int | None) -> None:
        """Roll back to the template of an earlier revision, by default the previous one."""
        present = await self._present(workload_id)
        async with self._database.read() as connection:
            known = {found.number: found for found in await revisions.of_workload(connection, workload_id)}
        wanted = number or max((one for one in known if one < present.revision), default=None)
        name = present.workload.name
        if wanted is None:
            raise Conflict(f"deployment {name!r} has no earlier revision", code="no-revision")
        if wanted not in known:
            raise NotFound(f"deployment {name!r} has no revision {wanted}", code="unknown-revision")
        template = templates.decode(known[wanted].template)
        if template == present.workload.template:
            raise Conflict(f"deployment {name!r} already runs revision {wanted}", code="same-revision")
        await self._change(principal, present, template, f"back to revision {wanted}")

    async def pause(self, principal: Principal, workload_id: UUID) -> None:
        """Pause the rollout until it is resumed."""
        await self._set_phase(principal, workload_id, Phase.PAUSED, frozenset({Phase.ROLLING}))

    async def resume(self, principal: Principal, workload_id: UUID) -> None:
        """Resume a paused or stalled rollout."""
        await self._set_phase(principal, workload_id, Phase.ROLLING, frozenset({Phase.PAUSED, Phase.STALLED}))

    async def _present(self, workload_id: UUID) -> Present:
        async with self._database.read() as connection:
            present = await revisions.present(connection, workload_id)
        if present.workload.kind is not Kind.DEPLOYMENT:
            kind, name = present.workload.kind, present.workload.name
            raise Conflict(f"{name!r} is a {kind}; only deployments can be updated", code="not-a-deployment")
        return present

    async def _change(
        self,
        principal: Principal,
        present: Present,
        template: TaskTemplate,
        cause: str,
        replicas_asked: int | None = None,
        bounds_asked: RolloutRequest | None = None,
    ) -> None:
        new = replace(present.workload, replicas=replicas_asked or present.workload.replicas)
        if template != present.workload.template:
            new = await self._admitted(principal, new, template)

        async def work(connection: Connection) -> Applied:
            own = await _locked(connection, new.id)
            if own.revision != present.revision:
                raise Conflict(f"deployment {new.name!r} changed in the meantime; try again", code="changed-meanwhile")
            # Scaling makes no revision: a deployment that was scaled since it was read stays so.
            replicas = replicas_asked or own.replicas
            rollout = rollout_of(own.rollout, bounds_asked)
            before, after = {"revision": own.revision, "replicas": own.replicas}, {"cause": cause, "replicas": replicas}
            await check_scale_up(connection, PendingTasks(), own.workload, before=own.replicas, replicas=replicas)
            await record(connection, principal, own.workload, "update", before, after)
            if template == present.workload.template:
                return await _set_numbers(connection, own, rollout, replicas, principal)
            return await self._write(connection, own, replace(new, replicas=replicas), rollout, cause, principal)

        log_applied(await self._database.write(work))

    async def _with_default_requests(
        self, principal: Principal, own: NewWorkload, template: TaskTemplate, replicas: int
    ) -> TaskTemplate:
        context = await self._context_loader.load_for_keypair(principal, own.principal.access_key)
        policy = next(pool.policy for pool in context.pools if pool.id == own.pool_id)
        return with_default_requests(template, policy.default_requests, context.served.get(own.pool_id), replicas)

    async def _admitted(self, principal: Principal, new: NewWorkload, template: TaskTemplate) -> NewWorkload:
        """Return the workload with the template; raise for a violation that waiting cannot cure."""
        if template.runtime != new.template.runtime:
            raise InvalidInput(
                f"deployment {new.name!r} runs {new.template.runtime} tasks and cannot become one of"
                f" {template.runtime} tasks; deploy another one",
                code="other-runtime",
            )
        if _named_volumes(template) != _named_volumes(new.template):
            raise InvalidInput(
                f"deployment {new.name!r} cannot change its named volumes while it runs; submit another one",
                code="other-volumes",
            )
        constraints = replace(new.constraints, images=tuple(images_of(template)))
        check_devices(constraints.devices, requests_of(template))
        new = replace(new, template=template, constraints=constraints)
        context = await self._context_loader.load_for_keypair(principal, new.principal.access_key)
        check(new, next(pool for pool in context.pools if pool.id == new.pool_id), context)
        if new.schedule.booking is not None:
            async with self._database.read() as connection:
                for slot in await timeslots.load(connection, [new.schedule.booking]):
                    check_fits(new, slot)
        for refusal in (await self._hooks.refused([new])).values():
            raise refusal
        return new

    async def _write(
        self,
        connection: Connection,
        own: Deployment,
        new: NewWorkload,
        rollout: Rollout,
        cause: str,
        principal: Principal,
    ) -> Applied:
        at = now()
        surge, unavailable = bounds(new.replicas, rollout.surge, rollout.unavailable)
        at_once = replace(new, task_ids=tuple(new_id() for _ in range(max(surge, unavailable))))
        submitted = (new.id, new.principal.project_id, new.template)
        for unknown in (await secrets.refusals(connection, [submitted], self._secret_box)).values():
            raise unknown
        gate = await open_gate(connection, [at_once], self._validators, at)
        if (refusal := await gate.refuses(at_once)) is not None:
            raise refusal
        return await revisions.change(
            connection,
            own,
            new.template,
            rollout,
            new.constraints,
            cause=cause,
            replicas=new.replicas,
            user_id=principal.user_id,
            now=at,
        )

    async def _set_phase(
        self, principal: Principal, workload_id: UUID, phase: Phase, allowed: frozenset[Phase]
    ) -> None:
        await self._present(workload_id)

        async def work(connection: Connection) -> None:
            own = await _locked(connection, workload_id)
            name, found = own.workload.name, own.rollout.phase
            if found not in allowed:
                raise Conflict(f"the rollout of deployment {name!r} is {found}", code=f"rollout-{found}")
            action = "pause" if phase is Phase.PAUSED else "resume"
            await record(connection, principal, own.workload, action, {"rollout": found}, {"rollout": phase})
            await rollouts.set_phase(connection, own, phase, actor=str(principal.user_id), now=now())

        await self._database.write(work)


def _named_volumes(template: TaskTemplate) -> set[str]:
    return {volume.name for volume in template.volumes if volume.kind is VolumeKind.NAMED}


async def _locked(connection: Connection, workload_id: UUID) -> Deployment:
    own = await rollouts.lock(connection, workload_id)
    if own.over:
        state = "removed" if own.workload.removed_at is not None else own.workload.status.lower()
        raise Conflict(f"deployment {own.workload.name!r} is {state}", code="already-ended")
    return own


async def _set_numbers(
    connection: Connection, own: Deployment, rollout: Rollout, replicas: int, principal: Principal
) -> Applied:
    """Change the rollout policy and the number of replicas, which needs no new revision."""
    actor = str(principal.user_id)
    if rollout != own.rollout:
        await rollouts.set_rollout_policy(connection, own, rollout, actor=actor, now=now())
    if replicas != own.replicas:
        return await rollouts.scale(connection, own.workload.id, replicas, actor=actor, now=now())
    return Applied()
