"""The API as one ASGI application."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import APIRouter, FastAPI
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from mooring.api.agents import uploads as agent_uploads
from mooring.api.auth.request_access import authenticate, resolve_flow
from mooring.api.compat import fog_compute
from mooring.api.middleware import errors
from mooring.api.middleware.client_address import trusted_hosts
from mooring.api.middleware.outermost import RequestMiddleware
from mooring.api.routes.cluster import (
    api_documentation,
    capacity,
    console,
    defragmentation,
    events,
    front_page,
    join_tokens,
    nodes,
    operations,
    pools,
    quarantine,
    scaling,
    server,
    timeline,
    what_if,
)
from mooring.api.routes.tenancy import (
    accounting,
    actions,
    auth,
    domains,
    keypairs,
    logins,
    policies,
    projects,
    quotas,
    shares,
    users,
)
from mooring.api.routes.workloads import (
    batches,
    deployments,
    labs,
    manifests,
    secrets,
    sessions,
    task_channels,
    timeslots,
    uploads,
    volumes,
    workloads,
)
from mooring.api.services import Services
from mooring.wire.fields import MAX_BATCH_BYTES
from mooring.wire.workloads.uploads import MAX_MANIFEST_BYTES

_TAGS = [
    {"name": "workloads", "description": "Sessions and deployments: submit, watch, scale, remove."},
    {"name": "sessions", "description": "Sessions: interactive, batch, inference and system."},
    {"name": "task access", "description": "Access to running tasks: commands, ports, files."},
    {"name": "timeslots", "description": "Capacity for a window of time: bookings, labs, maintenance."},
    {"name": "deployments", "description": "Rollouts of deployments: update, roll back, pause, resume."},
    {"name": "deployment", "description": "Deployments in the API of fog-compute."},
    {"name": "events", "description": "Events: page by page, or as a stream."},
    {"name": "nodes", "description": "The machines that run tasks."},
    {"name": "agents", "description": "Downloads of agents."},
    {"name": "pools", "description": "Sets of nodes with one scheduling policy."},
    {"name": "uploads", "description": "Folders of users for the working folders of their tasks."},
    {"name": "volumes", "description": "Folders of a project that outlive its tasks."},
    {"name": "accounting", "description": "Usage, records of ended work, and free capacity."},
    {"name": "timeline", "description": "Running, booked, planned and free capacity over time."},
    {"name": "quotas", "description": "Limits of tenants and their usage."},
    {"name": "auth", "description": "Logging in."},
    {"name": "tenants", "description": "Domains, projects, users, keypairs, policies, and records of admin actions."},
    {"name": "operations", "description": "The leader, the servers and the control loops."},
    {"name": "server", "description": "The server itself."},
]
_OPERATIONS = (auth.router, logins.router, operations.router, server.router, api_documentation.router)
OPERATIONS = (*_OPERATIONS, front_page.router)
"""Routes of a server that only schedules."""
EVERYTHING = (
    batches.router,
    workloads.router,
    task_channels.router,
    sessions.router,
    timeslots.router,
    labs.router,
    manifests.router,
    events.router,
    deployments.router,
    fog_compute.router,
    nodes.router,
    quarantine.router,
    join_tokens.router,
    pools.router,
    capacity.router,
    defragmentation.router,
    scaling.router,
    accounting.router,
    timeline.router,
    what_if.router,
    quotas.router,
    shares.router,
    domains.router,
    projects.router,
    secrets.router,
    users.router,
    keypairs.router,
    volumes.router,
    uploads.router,
    agent_uploads.router,
    policies.router,
    actions.router,
    *_OPERATIONS,
    console.router,
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
        errors.declare_conflicts(router.routes)
        app.routes.extend(router.routes)
    errors.install(app)
    app.add_middleware(
        RequestMiddleware,
        authenticate=authenticate,
        resolve_flow=resolve_flow,
        larger_bodies={batches.PATH: MAX_BATCH_BYTES, uploads.PATH: MAX_MANIFEST_BYTES},
        streams_body=lambda scope: task_channels.takes_a_stream(scope) or uploads.takes_a_stream(scope),
    )
    # The last is the outermost: everything inside sees the client, not the proxy.
    if services.trusted_proxies:
        app.add_middleware(ProxyHeadersMiddleware, trusted_hosts=trusted_hosts(services.trusted_proxies))
    return app
