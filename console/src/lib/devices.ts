/** The owners of devices, out of the running tasks. */

import type { TaskUse } from "../api/types";

export interface Owner {
  task: TaskUse;
  /** In the base unit of the slot. */
  share: number;
}

/** The owners of each device of a slot, by the name of its node and its index. */
export function deviceOwners(tasks: readonly TaskUse[], slot: string): Map<string, Owner[]> {
  const found = new Map<string, Owner[]>();
  for (const task of tasks) {
    for (const [index, share] of task.devices?.[slot] ?? []) {
      const key = `${task.node} ${index}`;
      const list = found.get(key);
      if (list) list.push({ task, share: share ?? 0 });
      else found.set(key, [{ task, share: share ?? 0 }]);
    }
  }
  return found;
}
