import { expect, it } from "vitest";
import { safeNext } from "./next";

it("a login returns to pages of the console only", () => {
  expect(safeNext("/workloads?sort=name")).toBe("/workloads?sort=name");
  for (const other of ["https://example.org/", "//example.org", "/\\example.org", "/\t/example.org", "/\n/example.org", "\t//example.org", "/x\\y", "javascript:alert(1)", "/login?next=/x", undefined]) {
    expect(safeNext(other)).toBe("/overview");
  }
});
