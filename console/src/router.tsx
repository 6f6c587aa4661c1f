/** The routes. Each page except the list of workloads is a chunk of its own. */

import { createRootRoute, createRoute, createRouter, lazyRouteComponent, Outlet, redirect } from "@tanstack/react-router";
import * as session from "./api/session";
import { Empty } from "./components/basics";
import { Layout } from "./components/layout";
import { workloadFilters } from "./lib/filters";
import { HOURS } from "./lib/gantt";
import { KINDS, type Kind } from "./lib/kinds";
import { nodesSearch } from "./lib/nodes_search";
import { PARTS, type Part } from "./lib/parts";
import { tabOf } from "./lib/tabs";
import { Login } from "./pages/login";

const root = createRootRoute({
  component: Outlet,
  notFoundComponent: () => <Empty title="There is no such page." />,
});

const login = createRoute({
  getParentRoute: () => root,
  path: "/login",
  validateSearch: (raw: Record<string, unknown>): { next?: string } => (typeof raw.next === "string" ? { next: raw.next } : {}),
  component: Login,
});

const app = createRoute({
  getParentRoute: () => root,
  id: "app",
  component: Layout,
  beforeLoad: async ({ location }) => {
    if (!(await session.restore())) throw redirect({ to: "/login", search: { next: location.href } });
  },
});

const home = createRoute({
  getParentRoute: () => app,
  path: "/",
  beforeLoad: () => {
    throw redirect({ to: "/overview" });
  },
});

const overview = createRoute({
  getParentRoute: () => app,
  path: "/overview",
  component: lazyRouteComponent(() => import("./pages/overview"), "Overview"),
});

const workloads = createRoute({
  getParentRoute: () => app,
  path: "/workloads",
  validateSearch: workloadFilters,
  component: lazyRouteComponent(() => import("./pages/workloads"), "Workloads"),
});

const workload = createRoute({
  getParentRoute: () => app,
  path: "/workloads/$ref",
  validateSearch: tabOf,
  component: lazyRouteComponent(() => import("./pages/workload"), "WorkloadPage"),
});

const fresh = createRoute({
  getParentRoute: () => app,
  path: "/new",
  validateSearch: (raw: Record<string, unknown>): { kind?: Kind; from?: string; view?: "yaml" } => ({
    ...(KINDS.some((kind) => kind === raw.kind) && { kind: raw.kind as Kind }),
    ...(typeof raw.from === "string" && { from: raw.from }),
    ...(raw.view === "yaml" && { view: "yaml" as const }),
  }),
  component: lazyRouteComponent(() => import("./pages/new_workload"), "NewWorkload"),
});

const timeline = createRoute({
  getParentRoute: () => app,
  path: "/timeline",
  validateSearch: (raw: Record<string, unknown>): { hours?: number; pool?: string; slot?: string } => ({
    ...(HOURS.some((hours) => hours === raw.hours) && { hours: raw.hours as number }),
    ...(typeof raw.pool === "string" && { pool: raw.pool }),
    ...(typeof raw.slot === "string" && { slot: raw.slot }),
  }),
  component: lazyRouteComponent(() => import("./pages/timeline"), "TimelinePage"),
});

const nodes = createRoute({
  getParentRoute: () => app,
  path: "/nodes",
  validateSearch: nodesSearch,
  component: lazyRouteComponent(() => import("./pages/nodes"), "Nodes"),
});

const node = createRoute({
  getParentRoute: () => app,
  path: "/nodes/$name",
  component: lazyRouteComponent(() => import("./pages/node"), "NodePage"),
});

const sharing = createRoute({
  getParentRoute: () => app,
  path: "/sharing",
  component: lazyRouteComponent(() => import("./pages/sharing"), "Sharing"),
});

const admin = createRoute({
  getParentRoute: () => app,
  path: "/admin",
  validateSearch: (raw: Record<string, unknown>): { part?: Part; name?: string } => ({
    ...(PARTS.some((part) => part === raw.part) && { part: raw.part as Part }),
    ...(typeof raw.name === "string" && { name: raw.name }),
  }),
  component: lazyRouteComponent(() => import("./pages/admin"), "Admin"),
});

const routeTree = root.addChildren([login, app.addChildren([home, overview, workloads, workload, fresh, timeline, nodes, node, sharing, admin])]);

export const router = createRouter({ routeTree, defaultPreload: "intent" });

declare module "@tanstack/react-router" {
  interface Register {
    router: typeof router;
  }
}
