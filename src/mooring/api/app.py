"""The API as one ASGI application."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import APIRouter, FastAPI
from fastapi_swagger import patch_fastapi

from mooring.api import (
    accounting,
    actions,
    auth,
    batches,
    channels,
    deployment,
    deployments,
    domains,
    errors,
    events,
    join_tokens,
    keypairs,
    labs,
    nodes,
    operations,
    policies,
    pools,
    projects,
    quarantine,
    quotas,
    scaling,
    secrets,
    server,
    sessions,
    timeline,
    timeslots,
    users,
    volumes,
    workloads,
)
from mooring.api.access import admit
from mooring.api.boundary import Boundary
from mooring.api.services import Services
from mooring.wire.fields import MAX_BATCH_BYTES

_TAGS = [
    {"name": "workloads", "description": "Sessions and deployments: submit, watch, scale, remove."},
    {"name": "sessions", "description": "Sessions: interactive, batch, inference and system."},
    {"name": "ways in", "description": "Into tasks: commands, ports, files."},
    {"name": "timeslots", "description": "Room for a window of time: bookings, labs, maintenance."},
    {"name": "deployments", "description": "Deployments over time: update, go back, pause, resume."},
    {"name": "deployment", "description": "Deployments in the words of fog-compute."},
    {"name": "events", "description": "What happened: page by page, or as a stream."},
    {"name": "nodes", "description": "The machines that run tasks."},
    {"name": "pools", "description": "Sets of nodes with one scheduling policy."},
    {"name": "volumes", "description": "Folders of a project that outlive its tasks."},
    {"name": "accounting", "description": "What was used, what is left of ended work, and what would start now."},
    {"name": "timeline", "description": "What runs, is booked, planned and free in the time ahead."},
    {"name": "quotas", "description": "What tenants may use, and what of it they do."},
    {"name": "auth", "description": "Logging in."},
    {"name": "tenants", "description": "Domains, projects, users, keypairs, their policies, and what admins did."},
    {"name": "operations", "description": "Who leads, which servers are there, and what the leader's loops did."},
    {"name": "server", "description": "The server itself."},
]
OPERATIONS = (auth.router, operations.router, server.router)
"""What a server that only schedules answers."""
EVERYTHING = (
    batches.router,
    workloads.router,
    channels.router,
    sessions.router,
    timeslots.router,
    labs.router,
    events.router,
    deployments.router,
    deployment.router,
    nodes.router,
    quarantine.router,
    join_tokens.router,
    pools.router,
    scaling.router,
    accounting.router,
    timeline.router,
    quotas.router,
    domains.router,
    projects.router,
    secrets.router,
    users.router,
    keypairs.router,
    volumes.router,
    policies.router,
    actions.router,
    *OPERATIONS,
)


def create_app(services: Services, routers: Sequence[APIRouter] = EVERYTHING) -> FastAPI:
    """The application over these services."""
    app = FastAPI(
        title="Mooring",
        summary="A multi-tenant cluster scheduler and its control plane.",
        version=services.version,
        openapi_tags=_TAGS,
        docs_url=None,
        redoc_url=None,
        swagger_ui_oauth2_redirect_url=None,
        redirect_slashes=False,
    )
    app.state.services = services
    # As they stand: to include a router is to build each of its routes a second time.
    for router in routers:
        app.routes.extend(router.routes)
    errors.install(app)
    # Swagger UI from the installed package: the page works where nothing else can be reached.
    patch_fastapi(app, redirect_from_root_to_docs=False)
    app.add_middleware(
        Boundary,
        pressure=services.pressure,
        larger_bodies={batches.PATH: MAX_BATCH_BYTES},
        streams=channels.takes_a_stream,
        admit=admit,
    )
    return app
