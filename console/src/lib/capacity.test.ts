import { expect, test } from "vitest";
import type { CapacityList } from "../api/types";
import { nodeStates, utilisation } from "./capacity";

const slot = (allocatable: string, used: string, free: string) => ({ capacity: allocatable, allocatable, held: "0", reserved: "0", used, free });
const LIST: CapacityList = {
  pools: [
    { pool: "b", states: { READY: 3, DRAINING: 1 }, slots: { memory: slot("8Gi", "2Gi", "4Gi"), gpu: slot("0", "0", "0") } },
    { pool: "a", states: { READY: 1 }, slots: { cpu: slot("4", "1", "3") } },
  ],
};

test("utilisation is by pool and slot, and apart for what is only held or reserved", () => {
  const found = utilisation(LIST).map(({ pool, slot: name, used, pledged }) => [pool, name, used, pledged]);
  expect(found).toEqual([
    ["a", "cpu", 25, 0],
    ["b", "memory", 25, 25],
  ]);
});

test("nodes are counted by state over all pools", () => {
  expect(nodeStates(LIST)).toEqual([
    ["READY", 4],
    ["DRAINING", 1],
  ]);
});
