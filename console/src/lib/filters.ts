/** The filters of the list of workloads as its URL has them; anything else in the URL is dropped. */

import type { WorkloadStatus } from "../api/types";

export const STATUSES = ["PENDING", "RUNNING", "SUCCEEDED", "FAILED", "CANCELLED"] as const satisfies WorkloadStatus[];
export type Status = (typeof STATUSES)[number];
export const SORTS = ["created_at", "name", "status", "priority"] as const;

export interface WorkloadFilters {
  search?: string;
  status?: Status[];
  kind?: "session" | "deployment";
  pool?: string;
  all?: boolean;
  everyone?: boolean;
  sort?: string;
}

export function workloadFilters(raw: Record<string, unknown>): WorkloadFilters {
  const filters: WorkloadFilters = {};
  const asked = Array.isArray(raw.status) ? raw.status : [raw.status];
  const status = STATUSES.filter((each) => asked.includes(each));
  if (status.length) filters.status = status;
  // The router reads `7` in a URL as a number, and names may be numbers.
  if (typeof raw.search === "string" || typeof raw.search === "number") filters.search = String(raw.search);
  if (typeof raw.pool === "string" || typeof raw.pool === "number") filters.pool = String(raw.pool);
  if (raw.kind === "session" || raw.kind === "deployment") filters.kind = raw.kind;
  if (raw.all === true) filters.all = true;
  if (raw.everyone === true) filters.everyone = true;
  if (typeof raw.sort === "string" && (SORTS as readonly string[]).includes(raw.sort.replace(/^-/, ""))) {
    filters.sort = raw.sort;
  }
  return filters;
}
