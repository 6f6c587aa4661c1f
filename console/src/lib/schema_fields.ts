/** The control that edits a value, by the value's schema. */

import { alternatives, isObject, resolve, type Schema } from "./json_schema";

export type Control =
  | { kind: "choice"; options: readonly unknown[] }
  | { kind: "choices"; options: readonly unknown[] }
  | { kind: "number"; minimum?: number; maximum?: number }
  | { kind: "text" }
  | { kind: "lines" }
  | { kind: "map"; value: Schema }
  | { kind: "group"; fields: Record<string, Schema>; required: readonly string[] };

/** Return how a value is edited; alternatives that are null or an empty text are left out. */
export function controlOf(root: Schema, schema: Schema): Control {
  const types = alternatives(root, schema).filter((each) => each.type !== "null" && each.const !== "");
  const first = types[0];
  const listed = types.flatMap((each) => each.enum ?? (each.const !== undefined ? [each.const] : each.type === "boolean" ? [true, false] : []));
  if (first?.type === "array") {
    const inner = first.items ? controlOf(root, first.items) : undefined;
    return inner?.kind === "choice" ? { kind: "choices", options: inner.options } : { kind: "lines" };
  }
  if (first?.properties) return { kind: "group", fields: first.properties, required: first.required ?? [] };
  if (first?.type === "object") return { kind: "map", value: valueSchema(first) };
  if (types.length === 1 && listed.length) return { kind: "choice", options: listed };
  if (types.length === 1 && (first?.type === "integer" || first?.type === "number")) {
    return { kind: "number", minimum: first.minimum, maximum: first.maximum };
  }
  return { kind: "text" };
}

function valueSchema(map: Schema): Schema {
  const given = Object.values(map.patternProperties ?? {})[0] ?? map.additionalProperties;
  return isObject(given) ? (given as Schema) : { type: "string" };
}

/** The value that a typed text stands for: a number or a truth value where the schema allows one, else the text. */
export function scalar(root: Schema, schema: Schema, text: string): unknown {
  const types = alternatives(root, schema).flatMap((each) => each.type ?? []);
  if (/^-?\d+$/.test(text) && (types.includes("integer") || types.includes("number"))) return Number(text);
  if (types.includes("boolean") && (text === "true" || text === "false")) return text === "true";
  return text;
}

/** The first value of a control, as its user finds it when nothing is set. */
export function initial(root: Schema, schema: Schema): unknown {
  const found = resolve(root, schema).default;
  if (found !== undefined && found !== null) return found;
  const control = controlOf(root, schema);
  if (control.kind === "choice") return control.options[0];
  if (control.kind === "choices" || control.kind === "lines") return [];
  if (control.kind === "map") return {};
  if (control.kind === "group") {
    return Object.fromEntries(Object.entries(control.fields).map(([name, field]) => [name, initial(root, field)]));
  }
  return control.kind === "number" ? (control.minimum ?? 0) : "";
}

/** A value in words: `cpu 4, memory 8Gi` for a map. */
export function inWords(value: unknown): string {
  if (value === null || value === undefined || value === "") return "–";
  if (Array.isArray(value)) return value.map(inWords).join(", ") || "none";
  if (!isObject(value)) return value === true ? "yes" : value === false ? "no" : String(value);
  const parts = Object.entries(value).map(([name, each]) => (isObject(each) && !Object.keys(each).length ? name : `${name} ${isObject(each) ? `(${inWords(each)})` : inWords(each)}`));
  return parts.join(", ") || "none";
}
