import { expect, test } from "vitest";
import { controlOf, initial, inWords, scalar } from "./schema_fields";

const none = { type: "null" };
const number = { type: "integer", minimum: 1, maximum: 9 };
const quantity = { anyOf: [{ type: "string" }, { type: "integer" }] };
const root = { $defs: { Health: { type: "object", properties: { command: { type: "array", items: { type: "string" } }, seconds: { ...number, default: 3 } }, required: ["command"] } } };

test("each kind of value has its control", () => {
  const kinds = (schema: object) => controlOf(root, schema).kind;
  expect(kinds({ anyOf: [number, none] })).toBe("number");
  expect(kinds({ anyOf: [quantity, none] })).toBe("text");
  expect(kinds({ anyOf: [{ type: "string", pattern: "a" }, { const: "", type: "string" }, none] })).toBe("text");
  expect(kinds({ anyOf: [{ type: "array", items: { type: "string" } }, none] })).toBe("lines");
  expect(kinds({ $ref: "#/$defs/Health" })).toBe("group");
  expect(controlOf(root, { type: "boolean" })).toEqual({ kind: "choice", options: [true, false] });
  expect(controlOf(root, { type: "array", items: { enum: ["a", "b"] } })).toEqual({ kind: "choices", options: ["a", "b"] });
  expect(controlOf(root, { anyOf: [{ type: "object", patternProperties: { "^.*$": number } }, none] })).toEqual({ kind: "map", value: number });
});

test("a typed text is a number or a truth value only where these are allowed", () => {
  expect(scalar(root, quantity, "4")).toBe(4);
  expect(scalar(root, quantity, "500m")).toBe("500m");
  expect(scalar(root, { type: "string" }, "4")).toBe("4");
  expect(scalar(root, { anyOf: [{ type: "boolean" }, { type: "string" }] }, "true")).toBe(true);
});

test("a group begins with the defaults of its fields", () => {
  expect(initial(root, { $ref: "#/$defs/Health" })).toEqual({ command: [], seconds: 3 });
  expect(initial(root, { anyOf: [number, none], default: null })).toBe(1);
});

test("values are words instead of JSON", () => {
  expect(inWords({ cpu: "4", memory: "8Gi" })).toBe("cpu 4, memory 8Gi");
  expect(inWords({ zones: { ties: true }, plain: {} })).toBe("zones (ties yes), plain");
  expect([inWords(null), inWords([]), inWords(["a", "b"]), inWords(false), inWords(0)]).toEqual(["–", "none", "a, b", "no", "0"]);
});
