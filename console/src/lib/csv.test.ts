import { expect, it } from "vitest";
import { csv } from "./csv";

it("values with commas and quotes are quoted, and formulas are text", () => {
  expect(csv([["a,b", 'say "hi"', "=1+1", "-1+1|' '!A0", "2", "-2.5"]])).toBe(
    '"a,b","say ""hi""",\'=1+1,\'-1+1|\' \'!A0,2,-2.5\r\n',
  );
});
