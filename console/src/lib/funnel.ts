/** The steps from all nodes to the candidates. A node that several filters reject counts at the first of them. */

import type { Explanation } from "../api/types";

export interface Step {
  kind: "all" | "removed" | "candidates";
  name: string;
  text: string;
  /** Nodes of this step: all, removed by it, or left at the end. */
  nodes: number;
  /** Nodes that are left after it. */
  left: number;
}

export function funnel(explanation: Pick<Explanation, "nodes" | "candidates" | "removed" | "pool">): Step[] {
  const { nodes, candidates, removed, pool } = explanation;
  const steps: Step[] = [{ kind: "all", name: "All nodes", text: `of pool ${pool}`, nodes, left: nodes }];
  let left = nodes;
  for (const filter of removed) {
    left = Math.max(0, left - filter.nodes);
    steps.push({ kind: "removed", name: filter.by, text: filter.words, nodes: filter.nodes, left });
  }
  steps.push({ kind: "candidates", name: "Candidates", text: "can take the first task", nodes: candidates, left: candidates });
  return steps;
}
