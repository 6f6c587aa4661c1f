import { describe, expect, it } from "vitest";
import type { Node, Workload } from "../api/types";
import { workloadFilters } from "./filters";
import { amount, duration, fromNow, percent, readable } from "./format";
import { funnel } from "./funnel";
import { cellAt, GAP, layOut, level, sideFor } from "./heat";
import { LineSplitter, Resumption } from "./lines";
import { sentence } from "./sentence";

const NOW = Date.parse("2026-05-01T12:00:00Z");

function workload(part: Partial<Workload>): Workload {
  return { status: "PENDING", replicas: 1, ready: 0, reason: null, start: null, health: null, ...part } as Workload;
}

describe("times and quantities", () => {
  it("are distances in one unit", () => {
    expect(fromNow("2026-05-01T11:58:30Z", NOW)).toBe("1m ago");
    expect(fromNow("2026-05-01T15:00:00Z", NOW)).toBe("in 3h");
    expect(fromNow("2026-05-01T12:00:00Z", NOW)).toBe("now");
  });

  it("are durations in two units", () => {
    expect(duration(7_500)).toBe("2h 5m");
    expect(duration(0.2)).toBe("0s");
  });

  it("are parsed as the API writes them", () => {
    expect(amount("1.5")).toBe(1.5);
    expect(amount("500m")).toBe(0.5);
    expect(amount("2Gi")).toBe(2 ** 31);
    expect(amount("nonsense")).toBe(0);
  });

  it("are shown in the largest unit that fits", () => {
    expect(readable("23635524Ki")).toBe("22.5Gi");
    expect(readable("64Gi")).toBe("64Gi");
    expect(readable("0.1")).toBe("0.1");
  });

  it("are percentages between 0 and 100", () => {
    expect([percent(1, 4), percent(5, 4), percent(1, 0)]).toEqual([25, 100, 0]);
  });
});

describe("the sentence about a workload", () => {
  it("says why it is pending and when it starts", () => {
    const start = { waits_for: "room", planned_at: "2026-05-01T13:00:00Z" } as Workload["start"];
    const text = sentence(workload({ reason: { message: "3 nodes lack 2 gpu" }, start }), NOW);
    expect(text).toMatch(/^Waits for capacity: 3 nodes lack 2 gpu\. Planned to start in 1h \(/);
  });

  it("says what would have to change", () => {
    const start = { waits_for: "change", unless: "its pool gets a node with more cpu" } as Workload["start"];
    expect(sentence(workload({ start }), NOW)).toBe(
      "Cannot start as things are. It stays pending unless its pool gets a node with more cpu.",
    );
  });

  it("says how long it has run, and what is wrong with it", () => {
    const running = workload({
      status: "RUNNING",
      started_at: "2026-05-01T11:55:00Z",
      replicas: 3,
      ready: 2,
      health: "crash-looping",
      health_reason: "task 1 exited with code 1",
    });
    expect(sentence(running, NOW)).toBe("Runs for 5m. 2 of 3 tasks ready. Task 1 exited with code 1.");
  });

  it("says how and why it ended", () => {
    const failed = workload({ status: "FAILED", ended_at: "2026-05-01T11:59:00Z", last_reason: "exited with code 3" });
    expect(sentence(failed, NOW)).toBe("Failed 1m ago: exited with code 3.");
  });
});

describe("the funnel", () => {
  it("leads from all nodes to the candidates", () => {
    const removed = [
      { by: "resources", nodes: 3, words: "3 lack 2 gpu" },
      { by: "taints", nodes: 1, words: "1 is tainted" },
    ] as Parameters<typeof funnel>[0]["removed"];
    expect(funnel({ nodes: 5, candidates: 1, removed, pool: "gpu" }).map((step) => [step.name, step.nodes, step.left])).toEqual([
      ["All nodes", 5, 5],
      ["resources", 3, 2],
      ["taints", 1, 1],
      ["Candidates", 1, 1],
    ]);
  });
});

describe("filters in the URL", () => {
  it("drop what is not a filter", () => {
    expect(workloadFilters({ status: ["FAILED", "nonsense"], kind: "lab", sort: "-name", all: true, x: 1 })).toEqual({
      status: ["FAILED"],
      sort: "-name",
      all: true,
    });
  });

  it("read a name of digits as a name", () => {
    expect(workloadFilters({ search: 7 })).toEqual({ search: "7" });
  });
});

describe("the heat map", () => {
  const node = (name: string, free: string, part: Partial<Node> = {}): Node =>
    ({ name, pool: "p", status: "READY", schedulable: true, labels: {}, slots: { cpu: { allocatable: "8", free } }, ...part }) as Node;

  it("shows how full a node is, whatever fills it", () => {
    expect(level(node("a", "2"), "cpu")).toBe(0.75);
    expect(level(node("a", "2"), "gpu")).toBe(0);
  });

  it("puts the nodes of a group side by side, sorted as people count", () => {
    const layout = layOut([node("n10", "8"), node("n2", "8"), node("n1", "8", { status: "DOWN" })], "cpu", "pool", 2 * sideFor(3) + GAP);
    expect(layout.cells.map((cell) => [cell.node.name, cell.x, cell.level])).toEqual([
      ["n1", 0, null],
      ["n2", sideFor(3) + GAP, 0],
      ["n10", 0, 0],
    ]);
    const last = layout.cells[2];
    expect(last && cellAt(layout, last.x + 1, last.y + 1)).toBe(last);
    expect(cellAt(layout, 500, 500)).toBeUndefined();
  });
});

describe("lines of output", () => {
  it("are whole however they arrive, without colours", () => {
    const splitter = new LineSplitter(3);
    const lines = [...splitter.push("2026-05-01T12:00:00.250Z he"), ...splitter.push("llo\n- \x1b[31mred\x1b[0m\n2026"), ...splitter.end()];
    expect(lines).toEqual([
      { task: 3, time: "2026-05-01T12:00:00.250Z", text: "hello" },
      { task: 3, time: "", text: "red" },
      { task: 3, time: "2026", text: "" },
    ]);
  });
});

describe("Resumption", () => {
  const line = (time: string, text: string) => ({ time, text });

  it("keep the words of a notice that has no time", () => {
    const [line] = new LineSplitter(3).push("simulated: nothing runs\n");
    expect(line).toEqual({ task: 3, time: "", text: "simulated: nothing runs" });
  });

  it("shows lines of the same moment once, also those that come after an interruption", () => {
    const resumption = new Resumption();
    resumption.begin();
    expect(resumption.fresh([line("1", "a"), line("2", "b"), line("2", "c")])).toHaveLength(3);
    expect(resumption.since).toBe("2");
    resumption.begin();
    expect(resumption.fresh([line("2", "b"), line("2", "c"), line("2", "d"), line("3", "e")]).map(({ text }) => text)).toEqual(["d", "e"]);
    resumption.begin();
    expect(resumption.fresh([line("3", "e")])).toEqual([]);
  });
});
