/** The capacity of pools: how much of each slot is taken, and how many nodes are in which state. */

import type { CapacityList } from "../api/types";
import { amount, percent } from "./format";

export interface PoolUse {
  pool: string;
  slot: string;
  /** What all its nodes offer. */
  offered: number;
  /** In percent of that. */
  used: number;
  pledged: number;
}

/** How much of each slot of each pool is used, or held and reserved, in percent of what its nodes offer. */
export function utilisation({ pools }: Pick<CapacityList, "pools">): PoolUse[] {
  return pools
    .flatMap(({ pool, slots }) =>
      Object.entries(slots).map(([slot, found]) => {
        const offered = amount(found.allocatable);
        const used = percent(amount(found.used), offered);
        return { pool, slot, offered, used, pledged: Math.max(0, percent(offered - amount(found.free), offered) - used) };
      }),
    )
    .filter((use) => use.offered > 0)
    .sort((a, b) => a.pool.localeCompare(b.pool) || a.slot.localeCompare(b.slot));
}

/** The number of nodes by state, the most frequent first. */
export function nodeStates({ pools }: Pick<CapacityList, "pools">): [state: string, nodes: number][] {
  const states = new Map<string, number>();
  for (const { states: own } of pools) {
    for (const [state, nodes] of Object.entries(own)) states.set(state, (states.get(state) ?? 0) + nodes);
  }
  return [...states].sort((a, b) => b[1] - a[1] || a[0].localeCompare(b[0]));
}
