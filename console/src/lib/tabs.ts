/** The parts of the page of a workload, as its URL names them. */

export const TABS = ["tasks", "explanation", "history", "logs", "usage", "access", "shell"] as const;
export type Tab = (typeof TABS)[number];

export function tabOf(raw: Record<string, unknown>): { tab?: Tab; task?: number } {
  const tab = TABS.find((each) => each === raw.tab);
  const task = typeof raw.task === "number" && Number.isInteger(raw.task) && raw.task >= 0 ? raw.task : undefined;
  return { ...(tab && { tab }), ...(task !== undefined && { task }) };
}
