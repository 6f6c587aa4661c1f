/** The status of a workload in one sentence: what, why, and since when or until when. */

import type { Workload } from "../api/types";
import { absolute, count, fromNow } from "./format";

const WAITS: Record<string, string> = {
  room: "waits for capacity",
  quota: "waits for quota",
  dependency: "waits for other work",
  time: "waits for its start time",
  turn: "waits behind earlier work",
  change: "cannot start as things are",
};

export function sentence(workload: Workload, now: number = Date.now()): string {
  switch (workload.status) {
    case "PENDING":
    case "RESERVED":
      return pending(workload, now);
    case "SCHEDULED":
    case "PREPARING":
      return `Has ${workload.replicas === 1 ? "a node" : "nodes"} and is being prepared.`;
    case "RUNNING":
      return running(workload, now);
    case "TERMINATING":
      return "Is being stopped.";
    default:
      return ended(workload, now);
  }
}

function pending(workload: Workload, now: number): string {
  const { start, reason } = workload;
  const why = stringOf(reason, "message");
  const waits = start ? (WAITS[start.waits_for] ?? "waits") : "waits to be placed";
  const parts = [`${capital(waits)}${why ? `: ${why}` : ""}.`];
  const plan = reason && typeof reason.plan === "object" ? stringOf(reason.plan as Record<string, unknown>, "message") : "";
  if (start?.planned_at) parts.push(`Planned to start ${when(start.planned_at, now)}.`);
  else if (start?.estimated_at) parts.push(`Expected to start ${when(start.estimated_at, now)}.`);
  else if (start?.not_before) parts.push(`Starts no earlier than ${when(start.not_before, now)}.`);
  else if (start?.unless) parts.push(`It stays pending unless ${start.unless}.`);
  else if (plan) parts.push(`${capital(plan)}.`);
  return parts.join(" ");
}

function running(workload: Workload, now: number): string {
  const since = workload.started_at ? ` since ${fromNow(workload.started_at, now).replace(" ago", "")}` : "";
  const tasks = workload.replicas > 1 ? ` ${workload.ready} of ${count(workload.replicas, "task")} ready.` : "";
  const trouble = workload.health && workload.health !== "healthy" && workload.health_reason;
  return `Runs${since.replace("since", "for")}.${tasks}${trouble ? ` ${capital(trouble)}.` : ""}`;
}

function ended(workload: Workload, now: number): string {
  const when = workload.ended_at ? ` ${fromNow(workload.ended_at, now)}` : "";
  const words: Record<string, string> = {
    SUCCEEDED: "Succeeded",
    FAILED: "Failed",
    CANCELLED: "Was cancelled",
    EXPIRED: "Expired",
  };
  const why = stringOf(workload.reason, "message") || workload.last_reason;
  return `${words[workload.status] ?? "Ended"}${when}${why ? `: ${why}` : ""}.`;
}

function when(at: string, now: number): string {
  return `${fromNow(at, now)} (${absolute(at)})`;
}

function stringOf(record: Record<string, unknown> | null | undefined, key: string): string {
  const value = record?.[key];
  return typeof value === "string" ? value.replace(/\.$/, "") : "";
}

function capital(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
