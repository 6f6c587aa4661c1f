/** The cells of the heat map: nodes grouped and laid out in a given width. */

import type { Node } from "../api/types";
import { amount, byName } from "./format";

/** The side of a cell, for up to so many nodes: the fewer nodes, the larger. */
const SIZES: readonly [nodes: number, side: number][] = [
  [150, 32],
  [600, 22],
  [Number.POSITIVE_INFINITY, 16],
];
export const GAP = 2;
const HEADING = 26;
const AFTER = 10;

export interface Cell {
  node: Node;
  x: number;
  y: number;
  /** 0 to 1; null if the node cannot take work, or if this is not measured. */
  level: number | null;
}

export interface Group {
  name: string;
  y: number;
  nodes: number;
}

export interface Layout {
  /** The side of a cell. */
  side: number;
  groups: Group[];
  cells: Cell[];
  height: number;
}

/** The figures that the colour of a node can stand for. */
export const FIGURES = ["allocated", "free", "measured"] as const;
export type Figure = (typeof FIGURES)[number];

/** How full a node is in one slot, counting what is held and reserved. */
export function level(node: Node, slot: string): number {
  const found = node.slots[slot];
  const whole = found ? amount(found.allocatable) : 0;
  return found && whole > 0 ? Math.min(1, Math.max(0, 1 - amount(found.free) / whole)) : 0;
}

/** The measured load of the machine, which agents report of its processors and its memory. */
export function measured(node: Node, slot: string): number | null {
  if (node.simulated || node.status !== "READY") return null;
  if (slot === "cpu") return Math.min(1, node.cpu_percent / 100);
  return slot === "memory" ? Math.min(1, node.memory_percent / 100) : null;
}

/** The level of a node by a figure; what is free counts by the largest node, so that the darkest take the most. */
export function levelBy(figure: Figure, nodes: readonly Node[], slot: string): (node: Node) => number | null {
  if (figure === "measured") return (node) => measured(node, slot);
  if (figure === "free") {
    const most = Math.max(0, ...nodes.map((node) => amount(node.slots[slot]?.allocatable ?? "0")));
    return (node) => (most > 0 ? Math.max(0, amount(node.slots[slot]?.free ?? "0")) / most : 0);
  }
  return (node) => level(node, slot);
}

/** The group of a node: its pool, its region, or the value of a label. */
export function groupOf(node: Node, by: string): string {
  if (by === "pool") return node.pool;
  if (by === "region") return node.region ?? "no region";
  if (by === "status") return node.status.toLowerCase();
  return node.labels[by] ?? `no ${by}`;
}

export function sideFor(nodes: number): number {
  return SIZES.find(([most]) => nodes <= most)?.[1] ?? 16;
}

export function layOut(nodes: readonly Node[], slot: string, by: string, width: number, figure: Figure = "allocated"): Layout {
  const levelOf = levelBy(figure, nodes, slot);
  const members = new Map<string, Node[]>();
  for (const node of nodes) {
    const name = groupOf(node, by);
    const list = members.get(name);
    if (list) list.push(node);
    else members.set(name, [node]);
  }
  const side = sideFor(nodes.length);
  const columns = Math.max(1, Math.floor((width + GAP) / (side + GAP)));
  const groups: Group[] = [];
  const cells: Cell[] = [];
  let y = 0;
  for (const name of [...members.keys()].sort()) {
    const list = (members.get(name) ?? []).sort(byName);
    groups.push({ name, y, nodes: list.length });
    y += HEADING;
    list.forEach((node, index) => {
      cells.push({
        node,
        x: (index % columns) * (side + GAP),
        y: y + Math.floor(index / columns) * (side + GAP),
        level: node.status === "READY" && node.schedulable ? levelOf(node) : null,
      });
    });
    y += Math.ceil(list.length / columns) * (side + GAP) + AFTER;
  }
  return { side, groups, cells, height: y };
}

export function cellAt(layout: Layout, x: number, y: number): Cell | undefined {
  return layout.cells.find((cell) => x >= cell.x && x < cell.x + layout.side && y >= cell.y && y < cell.y + layout.side);
}
