import { describe, expect, it } from "vitest";
import type { Node, TaskUse } from "../api/types";
import { deviceOwners } from "./devices";
import { layOut, levelBy } from "./heat";
import { nodesSearch } from "./nodes_search";

function node(name: string, free: string, allocatable: string, part: Partial<Node> = {}): Node {
  return { name, status: "READY", simulated: false, cpu_percent: 25, memory_percent: 50, slots: { cpu: { free, allocatable } }, ...part } as unknown as Node;
}

describe("the cells of the heat map", () => {
  it("are smaller the more nodes there are, and 5,000 fit on a few screens", () => {
    const side = (count: number) => layOut(Array.from({ length: count }, (_, index) => node(`n${index}`, "1", "1", { pool: "default" })), "cpu", "pool", 1100);
    expect([side(60).side, side(500).side, side(5000).side]).toEqual([32, 22, 16]);
    expect(side(5000).height).toBeLessThan(1600);
  });
});

describe("the figures of the heat map", () => {
  const nodes = [node("small", "4", "4"), node("large", "2", "16")];

  it("compare what is free with the largest node, and what is allocated with the node itself", () => {
    expect(nodes.map(levelBy("free", nodes, "cpu"))).toEqual([4 / 16, 2 / 16]);
    expect(nodes.map(levelBy("allocated", nodes, "cpu"))).toEqual([0, 14 / 16]);
  });

  it("are measured of processors and memory, where an agent reports", () => {
    expect(nodes.map(levelBy("measured", nodes, "cpu"))).toEqual([0.25, 0.25]);
    expect(levelBy("measured", nodes, "memory")(nodes[0] as Node)).toBe(0.5);
    expect(levelBy("measured", nodes, "storage")(nodes[0] as Node)).toBeNull();
    expect(levelBy("measured", nodes, "cpu")(node("toy", "1", "1", { simulated: true }))).toBeNull();
    expect(levelBy("measured", nodes, "cpu")(node("gone", "1", "1", { status: "LOST" }))).toBeNull();
  });

  it("are in the URL, and unknown ones are not", () => {
    expect(nodesSearch({ figure: "free", view: "devices", slot: "gpu", by: "rack" })).toEqual({ figure: "free", view: "devices", slot: "gpu", by: "rack" });
    expect(nodesSearch({ figure: "best", view: "list", slot: 3 })).toEqual({});
  });
});

describe("deviceOwners", () => {
  it("lists all owners of a device of a slot", () => {
    const tasks = [
      { task_id: "a", node: "n1", devices: { gpu: [[0, 500], [1, 1000]] } },
      { task_id: "b", node: "n1", devices: { gpu: [[0, 250]] } },
      { task_id: "c", node: "n2", devices: { nic: [[0, 1]] } },
    ] as unknown as TaskUse[];
    const owners = deviceOwners(tasks, "gpu");
    expect(owners.get("n1 0")?.map(({ task, share }) => [task.task_id, share])).toEqual([["a", 500], ["b", 250]]);
    expect(owners.get("n1 1")).toHaveLength(1);
    expect(owners.has("n2 0")).toBe(false);
  });
});
