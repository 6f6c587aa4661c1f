/** The rows of the timeline: what a node does when, and what is free of it in a window. */

import type { Node, Timeline, Timeslot, Workload } from "../api/types";
import { amount, count } from "./format";

export const HOURS = [6, 12, 24, 72, 168, 744] as const;

export interface Span {
  key: string;
  kind: "running" | "planned" | "booking" | "lab" | "maintenance";
  name: string;
  /** Milliseconds since the epoch; null: without a known end. */
  from: number;
  to: number | null;
  detail: string;
  /** The workload that it belongs to. */
  workload?: string;
}

export interface Window {
  from: number;
  to: number;
}

/** The planned or estimated start of a workload. */
export interface Planned extends Span {
  /** The nodes of the tasks that start then, with their numbers. */
  nodes: Record<string, number>;
}

/** The planned and estimated starts of pending work, the next ones first. */
export function plannedSpans(workloads: readonly Workload[], shown: (at: string) => string): Planned[] {
  return workloads
    .flatMap(({ id, name, user, replicas, start }) => {
      const at = start?.planned_at ?? start?.estimated_at;
      if (!at) return [];
      const detail = `${name} of ${user}, ${count(replicas, "task")}: ${start?.planned_at ? "planned" : "estimated"} for ${shown(at)}`;
      const to = start?.ends_at ? Date.parse(start.ends_at) : null;
      return [{ key: id, kind: "planned" as const, name, from: Date.parse(at), to, detail, workload: id, nodes: start?.nodes ?? {} }];
    })
    .sort((a, b) => a.from - b.from);
}

/** The planned starts on each node. */
export function byNode(plans: readonly Planned[]): Map<string, Span[]> {
  const found = new Map<string, Span[]>();
  for (const { nodes, ...span } of plans) {
    for (const [node, tasks] of Object.entries(nodes)) {
      const own = { ...span, key: `${span.key} ${node}`, detail: `${span.detail}; ${count(tasks, "task")} here by the present plan` };
      found.set(node, [...(found.get(node) ?? []), own]);
    }
  }
  return found;
}

/** Spans in as few lanes as possible, each lane without overlaps. */
export function lanes(spans: readonly Span[]): Span[][] {
  const found: Span[][] = [];
  for (const span of spans.toSorted((a, b) => a.from - b.from || a.name.localeCompare(b.name))) {
    const lane = found.find((each) => {
      const last = each.at(-1);
      return last && last.to !== null && last.to <= span.from;
    });
    if (lane) lane.push(span);
    else found.push([span]);
  }
  return found;
}

/** The window between two instants, in whole steps of its zoom, and never in the past. */
export function snapped(a: number, b: number, hours: number, now: number): Window {
  const step = (hours <= 24 ? 15 : hours <= 168 ? 60 : 24 * 60) * 60_000;
  const from = Math.floor(Math.min(a, b) / step) * step;
  const to = Math.ceil(Math.max(a, b) / step) * step;
  return { from: Math.max(from, Math.ceil(now / 60_000) * 60_000), to: Math.max(to, from + step) };
}

/** The times of the axis: whole hours or days of the viewer, at most about ten. */
export function ticks(from: number, hours: number): number[] {
  const steps = [1, 2, 3, 6, 12, 24, 48, 96];
  const step = (steps.find((each) => hours / each <= 10) ?? 96) * 3_600_000;
  const start = new Date(from);
  start.setHours(step >= 24 * 3_600_000 ? 0 : start.getHours(), 0, 0, 0);
  const found: number[] = [];
  for (let at = start.getTime(); at <= from + hours * 3_600_000; at += step) if (at >= from) found.push(at);
  return found;
}

type Forecast = Timeline["outlooks"][number];

/** The least that is free of a slot in a window, in base units. */
export function leastFree(forecast: Forecast, timeline: Timeline, slot: string, window: Window): number {
  const found = forecast.slots.find((each) => each.slot === slot);
  if (!found) return 0;
  const start = Date.parse(timeline.starts_at);
  const step = timeline.step_seconds * 1000;
  const first = Math.max(0, Math.floor((window.from - start) / step));
  const last = Math.min(found.free.length, Math.ceil((window.to - start) / step));
  return last > first ? Math.max(0, Math.min(...found.free.slice(first, last))) : 0;
}

/** The number of tasks with these requests, in base units, that fit on a node throughout a window. */
export function fitting(forecast: Forecast, timeline: Timeline, requests: Record<string, number>, window: Window): number {
  const counts = Object.entries(requests)
    .filter(([, request]) => request > 0)
    .map(([slot, request]) => Math.floor(leastFree(forecast, timeline, slot, window) / request));
  return counts.length ? Math.min(...counts) : 0;
}

export interface Fit {
  tasks: number;
  conflicts: Timeslot[];
}

/** The number of tasks that fit into a pool in a window, and the bookings that they would share it with. */
export function fit(timeline: Timeline, timeslots: readonly Timeslot[], pool: string, requests: Record<string, number>, window: Window): Fit {
  const nodes = timeline.outlooks.filter((each) => each.pool === pool);
  const tasks = nodes.reduce((sum, node) => sum + fitting(node, timeline, requests, window), 0);
  const conflicts = timeslots.filter((each) => each.pool === pool && Date.parse(each.start) < window.to && Date.parse(each.end) > window.from);
  return { tasks, conflicts };
}

/** A quantity in the base unit of its slot: millicores, bytes, thousandths of devices. */
export function baseUnits(slot: string, value: number, capacity: number | undefined, shown: number | undefined): number {
  if (capacity && shown) return Math.ceil(value * (capacity / shown));
  return Math.ceil(slot === "cpu" ? value * 1000 : value);
}

/** The ratio of base units to shown units is that of a node's capacity in both. */
export function inBaseUnits(slot: string, value: number, nodes: readonly Node[], timeline: Timeline | undefined): number {
  for (const forecast of timeline?.outlooks ?? []) {
    const capacity = forecast.slots.find((each) => each.slot === slot)?.capacity;
    const shown = nodes.find((each) => each.name === forecast.node)?.slots[slot]?.allocatable;
    if (capacity && shown) return baseUnits(slot, value, capacity, amount(shown));
  }
  return baseUnits(slot, value, undefined, undefined);
}
