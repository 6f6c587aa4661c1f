/** What the page of all nodes shows, as its URL says. */

import { FIGURES, type Figure } from "./heat";

export const VIEWS = ["map", "devices"] as const;

export interface NodesSearch {
  slot?: string;
  by?: string;
  figure?: Figure;
  view?: (typeof VIEWS)[number];
}

export function nodesSearch(raw: Record<string, unknown>): NodesSearch {
  return {
    ...(typeof raw.slot === "string" && { slot: raw.slot }),
    ...(typeof raw.by === "string" && { by: raw.by }),
    ...(FIGURES.some((each) => each === raw.figure) && { figure: raw.figure as Figure }),
    ...(raw.view === "devices" && { view: "devices" as const }),
  };
}
