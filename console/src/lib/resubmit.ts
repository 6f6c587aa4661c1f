/** The workload file of a workload that exists, as far as the API shows it. */

import { stringify } from "yaml";
import type { WorkloadDetail } from "../api/types";

export const NOT_COPIED = "Probes, secrets, host volumes, uploaded files, limits and placement rules are not part of the copy: add those that it needs.";

export function manifestOf(workload: WorkloadDetail): string {
  const deployment = workload.kind === "deployment";
  const volumes = new Set<string>();
  const container = (each: WorkloadDetail["containers"] extends (infer C)[] | undefined ? C : never, main: boolean) => {
    const mounts = Object.entries(each.mounts ?? {}).map(([path, volume]) => ({ volume, path }));
    for (const { volume } of mounts) volumes.add(volume);
    const environment = workload.environment?.[each.name];
    return given({
      name: each.name === "main" ? undefined : each.name,
      image: each.image,
      command: each.command,
      environment,
      resources: main ? workload.resources : undefined,
      ports: each.ports,
      mounts,
      terminal: each.terminal || undefined,
      stdin: each.stdin || undefined,
    });
  };
  const all = workload.containers ?? [];
  const init = all.filter((each) => each.role !== "main").map((each) => ({ ...container(each, false), ...(each.role === "sidecar" && { sidecar: true }) }));
  const main = all.filter((each) => each.role === "main").map((each, index) => container(each, index === 0));
  const manifest = given({
    kind: deployment ? "deployment" : "session",
    name: `${workload.name.replace(/-again(-\d+)?$/, "").slice(0, 54)}-again`,
    type: workload.type,
    pool: workload.pool,
    region: workload.region,
    priority: workload.priority === 10 ? undefined : workload.priority,
    replicas: workload.replicas === 1 || workload.array ? undefined : workload.replicas,
    array: workload.array ? arrayText(workload) : undefined,
    time: workload.time_limit_seconds,
    idle_timeout: workload.idle_timeout_seconds,
    retries: workload.retries || undefined,
    retry_on: workload.retry_on,
    singleton: workload.singleton,
    gang: workload.gang || undefined,
    min_tasks: workload.gang ? undefined : workload.min_tasks,
    single_node: workload.single_node || undefined,
    pack: workload.pack,
    labels: workload.labels,
    init_containers: init,
    containers: main.length ? main : [given({ image: workload.image, command: workload.command, resources: workload.resources })],
  });
  const named = [...volumes].map((name) => ({ name, kind: "named" }));
  return stringify(named.length ? { ...manifest, volumes: named } : manifest, { lineWidth: 0 });
}

function arrayText({ array, replicas, parallel }: WorkloadDetail): string {
  const { first, step } = array as NonNullable<WorkloadDetail["array"]>;
  const last = first + step * (replicas - 1);
  return `${first}-${last}${step === 1 ? "" : `:${step}`}${parallel ? `%${parallel}` : ""}`;
}

/** Without fields that are not set. */
function given(fields: Record<string, unknown>): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(fields).filter(([, value]) => value !== undefined && value !== null && !(typeof value === "object" && Object.keys(value).length === 0)),
  );
}
