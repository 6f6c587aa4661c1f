/** The rules of a policy, and the change that makes them others. */

export type Rules = Record<string, unknown>;

/** Return the rules that differ, with `inherit` for those that are no longer set. */
export function changedRules(before: Rules, after: Rules): Rules {
  const changed = Object.entries(after).filter(([name, value]) => !(name in before) || JSON.stringify(before[name]) !== JSON.stringify(value));
  const dropped = Object.keys(before).filter((name) => !(name in after));
  return Object.fromEntries([...changed, ...dropped.map((name) => [name, "inherit"] as const)]);
}
