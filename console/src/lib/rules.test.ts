import { expect, test } from "vitest";
import { changedRules } from "./rules";

test("only rules that differ are sent, and one that is no longer set is inherited again", () => {
  const before = { max_priority: 50, limits: { cpu: "4" }, max_tasks: 5, rights: ["private"] };
  const after = { max_priority: 50, limits: { cpu: "8" }, max_tasks: null, max_pending: 3 };
  expect(changedRules(before, after)).toEqual({ limits: { cpu: "8" }, max_tasks: null, max_pending: 3, rights: "inherit" });
  expect(changedRules(before, before)).toEqual({});
});
