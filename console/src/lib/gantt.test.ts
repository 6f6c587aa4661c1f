import { describe, expect, it } from "vitest";
import type { Timeline, Timeslot, Workload } from "../api/types";
import { byNode, fit, lanes, leastFree, plannedSpans, snapped, type Span, ticks } from "./gantt";

const HOUR = 3_600_000;
const START = Date.parse("2026-05-01T12:00:00Z");

function span(name: string, from: number, to: number | null): Span {
  return { key: name, name, kind: "running", from, to, detail: "" };
}

const TIMELINE = {
  starts_at: "2026-05-01T12:00:00Z",
  step_seconds: 3600,
  steps: 4,
  outlooks: [
    { pool: "p", node: "a", nodes: 1, slots: [{ slot: "cpu", capacity: 4000, running: [], booked: [], planned: [], free: [4000, 1000, 3000, 4000] }] },
    { pool: "p", node: "b", nodes: 1, slots: [{ slot: "cpu", capacity: 4000, running: [], booked: [], planned: [], free: [2000, 2000, 2000, 2000] }] },
  ],
} as Timeline;

describe("the timeline", () => {
  it("puts what overlaps into lanes, and nothing behind what has no end", () => {
    const found = lanes([span("b", 2, 4), span("a", 0, 2), span("c", 1, null), span("d", 9, 10)]);
    expect(found.map((lane) => lane.map(({ name }) => name))).toEqual([["a", "b", "d"], ["c"]]);
  });

  it("selects whole steps in either direction, not before now", () => {
    expect(snapped(START + 1.4 * HOUR, START + 0.6 * HOUR, 24, START)).toEqual({ from: START + HOUR / 2, to: START + 1.5 * HOUR });
    expect(snapped(START - HOUR, START + HOUR, 24, START).from).toBe(START);
  });

  it("has an axis of at most about ten times", () => {
    for (const hours of [6, 24, 168, 744]) expect(ticks(START, hours).length).toBeLessThanOrEqual(11);
    expect(ticks(START, 6)).toHaveLength(7);
  });

  it("knows the least that is free in a window", () => {
    const [node] = TIMELINE.outlooks as [Timeline["outlooks"][number]];
    expect(leastFree(node, TIMELINE, "cpu", { from: START, to: START + HOUR })).toBe(4000);
    expect(leastFree(node, TIMELINE, "cpu", { from: START + HOUR / 2, to: START + 3 * HOUR })).toBe(1000);
    expect(leastFree(node, TIMELINE, "gpu", { from: START, to: START + HOUR })).toBe(0);
  });

  it("counts the tasks that fit, and names the bookings beside them", () => {
    const slots = [{ id: "1", pool: "p", start: "2026-05-01T13:00:00Z", end: "2026-05-01T14:00:00Z" }] as Timeslot[];
    expect(fit(TIMELINE, slots, "p", { cpu: 2000 }, { from: START, to: START + HOUR })).toEqual({ tasks: 3, conflicts: [] });
    expect(fit(TIMELINE, slots, "p", { cpu: 2000 }, { from: START, to: START + 2 * HOUR })).toEqual({ tasks: 1, conflicts: slots });
  });
});

describe("plannedSpans", () => {
  it("are those of work with a planned or estimated start, in order, up to its time limit", () => {
    const work = (name: string, start: object | null) => ({ id: name, name, user: "ada", replicas: 2, start }) as unknown as Workload;
    const spans = plannedSpans(
      [
        work("late", { planned_at: "2026-05-01T14:00:00Z", ends_at: "2026-05-01T16:00:00Z" }),
        work("never", null),
        work("soon", { estimated_at: "2026-05-01T13:00:00Z", ends_at: null }),
      ],
      (at) => at,
    );
    expect(spans.map(({ name, from, to }) => [name, from, to])).toEqual([
      ["soon", Date.parse("2026-05-01T13:00:00Z"), null],
      ["late", Date.parse("2026-05-01T14:00:00Z"), Date.parse("2026-05-01T16:00:00Z")],
    ]);
    expect(spans[0]?.detail).toBe("soon of ada, 2 tasks: estimated for 2026-05-01T13:00:00Z");
  });

  it("are on the nodes of the plan, with the number of tasks there", () => {
    const start = { planned_at: "2026-05-01T14:00:00Z", ends_at: null, nodes: { a: 2, b: 1 } };
    const work = { id: "w", name: "gang", user: "ada", replicas: 3, start } as unknown as Workload;
    const found = byNode(plannedSpans([work], (at) => at));
    expect([...found.keys()]).toEqual(["a", "b"]);
    expect(found.get("a")?.map(({ kind, name, workload }) => [kind, name, workload])).toEqual([["planned", "gang", "w"]]);
    expect(found.get("a")?.[0]?.detail).toContain("; 2 tasks here by the present plan");
    expect(found.get("c")).toBeUndefined();
  });
});
