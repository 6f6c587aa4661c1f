/** Workload files: their text, what is wrong with it, and the requests that they stand for. */

import { type Document, isMap, isNode, isScalar, LineCounter, parseDocument } from "yaml";
import { KINDS, type Kind } from "./kinds";
import { at, check, isObject, type Path, type Schema } from "./json_schema";

export type Manifest = Record<string, unknown> & { kind: Kind };

export interface Problem {
  from: number;
  to: number;
  line: number;
  message: string;
}

export const TEMPLATES: Record<Kind, string> = {
  session: `kind: session
name: hello
type: batch
containers:
  - command: [sh, -c, "echo hello"]
    resources:
      cpu: 500m
      memory: 256Mi
`,
  deployment: `kind: deployment
name: web
replicas: 2
containers:
  - command: [sh, -c, "sleep infinity"]
    resources:
      cpu: 500m
      memory: 256Mi
rollout:
  surge: 1
  unavailable: 0
`,
  lab: `kind: lab
name: lesson
type: interactive
start: START
duration: 1h
containers:
  - command: [sh, -c, "sleep infinity"]
    resources:
      cpu: 500m
      memory: 256Mi
`,
};

/** The first text of a kind; a lab starts at the next full hour. */
export function template(kind: Kind, now: number = Date.now()): string {
  const hour = 3_600_000;
  const start = new Date(Math.ceil((now + hour / 4) / hour) * hour).toISOString().replace(".000", "");
  return TEMPLATES[kind].replace("START", start);
}

export interface Parsed {
  value: unknown;
  problems: Problem[];
}

export function parse(text: string, schema?: Schema): Parsed {
  const lines = new LineCounter();
  const document = parseDocument(text, { lineCounter: lines, schema: "core" });
  const problems = [...document.errors, ...document.warnings].map((error) => ({
    from: error.pos[0],
    to: Math.max(error.pos[1], error.pos[0] + 1),
    line: lines.linePos(error.pos[0]).line,
    message: error.message.split("\n")[0]?.replace(/ at line.*$/, "") ?? "",
  }));
  if (problems.length) return { value: undefined, problems };
  let value: unknown;
  try {
    value = exact(document.toJS({ maxAliasCount: 100 }));
  } catch (error) {
    return { value: undefined, problems: [{ from: 0, to: 1, line: 1, message: String(error) }] };
  }
  if (schema) {
    for (const { path, message, key } of check(schema, schema, value)) {
      const [from, to] = rangeOf(document, path, key);
      const field = [...path].map(String).join(".");
      problems.push({ from, to, line: lines.linePos(from).line, message: field && !key ? `${field}: ${message}` : message });
    }
  }
  return { value, problems };
}

/** Amounts travel as text where a number is not whole, since the API reads them exactly. */
function exact(value: unknown): unknown {
  if (typeof value === "number" && !Number.isInteger(value)) return String(value);
  if (Array.isArray(value)) return value.map(exact);
  if (isObject(value)) return Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, exact(inner)]));
  return value;
}

function rangeOf(document: Document, path: Path, key?: string): [number, number] {
  for (let steps = path.length; steps >= 0; steps--) {
    const node = steps ? document.getIn(path.slice(0, steps), true) : document.contents;
    if (key !== undefined && isMap(node)) {
      const pair = node.items.find((each) => isScalar(each.key) && each.key.value === key);
      if (isNode(pair?.key) && pair.key.range) return [pair.key.range[0], pair.key.range[1]];
    }
    if (isNode(node) && node.range) {
      const [from, to] = node.range;
      // A missing field is shown at the first line of the group that lacks it.
      return isScalar(node) ? [from, Math.max(to, from + 1)] : [from, from + 1];
    }
  }
  return [0, 1];
}

/** The text with another value at a path; undefined removes it. Comments and the order of fields stay. */
export function edited(text: string, path: Path, value: unknown): string {
  const document = parseDocument(text);
  if (document.errors.length) return text;
  if (value === undefined) document.deleteIn(path);
  else {
    for (let steps = 1; steps < path.length; steps++) {
      const parent = path.slice(0, steps);
      if (document.getIn(parent) === undefined || document.getIn(parent) === null) document.setIn(parent, document.createNode(typeof path[steps] === "number" ? [] : {}));
    }
    const node = document.createNode(value);
    if (Array.isArray(value)) (node as { flow?: boolean }).flow = true;
    document.setIn(path, node);
  }
  return document.toString({ lineWidth: 0, flowCollectionPadding: false });
}

const BOOKING = ["start", "end", "duration", "lead", "grace"];

/** The window of a lab, in milliseconds since the epoch; null while it is not complete. */
export function labWindow(manifest: Manifest): { from: number; to: number } | null {
  const from = Date.parse(String(manifest.start));
  const length = seconds(manifest.duration);
  const to = length === null ? Date.parse(String(manifest.end)) : from + length * 1000;
  return Number.isNaN(from) || Number.isNaN(to) || to <= from ? null : { from, to };
}

/** A duration as the API reads it: seconds, `90m`, `1h30m`, `1-12:00:00`. */
export function seconds(value: unknown): number | null {
  if (typeof value === "number") return value;
  if (typeof value !== "string") return null;
  const units = /^(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s?)?$/.exec(value);
  if (value && units) return sum(units.slice(1), [86_400, 3600, 60, 1]);
  const clock = /^(?:(\d+)-)?(\d+):(\d{1,2})(?::(\d{1,2}))?$/.exec(value);
  if (!clock) return null;
  const [, days, first, second, third] = clock;
  // Without days, two numbers are minutes and seconds.
  return days === undefined && third === undefined ? sum([first, second], [60, 1]) : sum([days, first, second, third], [86_400, 3600, 60, 1]);
}

function sum(numbers: (string | undefined)[], sizes: number[]): number {
  return numbers.reduce((total, each, index) => total + Number(each ?? 0) * (sizes[index] ?? 0), 0);
}

/** The request for the workload itself, without what only its booking needs. */
export function workloadRequest(manifest: Manifest): Record<string, unknown> {
  const { kind, ...fields } = manifest;
  const rest = kind === "lab" ? Object.fromEntries(Object.entries(fields).filter(([name]) => !BOOKING.includes(name))) : fields;
  const type = manifest.type ?? { session: "batch", deployment: "compute", lab: "interactive" }[kind];
  return { ...rest, kind: kind === "deployment" ? "deployment" : "session", type };
}

/** The request that submits a manifest. */
export function submission(manifest: Manifest): { path: string; body: Record<string, unknown> } {
  const workload = workloadRequest(manifest);
  if (manifest.kind !== "lab") return { path: "/api/workloads", body: workload };
  const promise = Object.fromEntries(Object.entries(manifest).filter(([name]) => BOOKING.includes(name)));
  return { path: "/api/labs", body: { ...promise, workload } };
}

export function isManifest(value: unknown): value is Manifest {
  return isObject(value) && KINDS.some((kind) => kind === value.kind);
}

export interface Suggestion {
  label: string;
  apply: string;
  info?: string;
}

/** What can be written at the end of this text: fields of the group, or values of the field. */
export function suggestions(schema: Schema, before: string): { from: number; options: Suggestion[] } | null {
  const start = before.lastIndexOf("\n") + 1;
  const line = before.slice(start);
  if (/^\s*#/.test(line)) return null;
  const kind = /^kind:[ \t]*(\w+)/m.exec(before)?.[1];
  const path = pathAt(before);
  const value = /^(\s*(?:- )*)([\w.-]+):[ \t]+(\S*)$/.exec(line);
  if (value) {
    const [, , key = "", typed = ""] = value;
    const found = key === "kind" && !path.length ? KINDS.map(String) : at(schema, { kind }, [...path, key]).flatMap(values);
    const options = found.map((each) => ({ label: each, apply: each }));
    return options.length ? { from: before.length - typed.length, options } : null;
  }
  const field = /^(\s*(?:- )*)([\w.-]*)$/.exec(line);
  if (!field) return null;
  const typed = field[2] ?? "";
  const groups = at(schema, { kind }, path);
  if (!kind && !path.length) return { from: before.length - typed.length, options: [{ label: "kind", apply: "kind: ", info: "session, deployment or lab" }] };
  const options = groups.flatMap((each) =>
    Object.entries(each.properties ?? {}).map(([name, inner]) => ({ label: name, apply: `${name}: `, info: inner.description })),
  );
  return options.length ? { from: before.length - typed.length, options } : null;
}

function values(schema: Schema): string[] {
  if (schema.const !== undefined) return [String(schema.const)];
  if (schema.enum) return schema.enum.map(String);
  return schema.type === "boolean" ? ["true", "false"] : [];
}

/** The path of the group that the last line is in, by indentation. */
export function pathAt(before: string): (string | number)[] {
  const open: { column: number; step: string | number }[] = [];
  const lines = before.split("\n");
  lines.forEach((line, index) => {
    const last = index === lines.length - 1;
    if (!last && /^\s*(#|$)/.test(line)) return;
    let column = line.length - line.trimStart().length;
    let rest = line.slice(column);
    for (let dash = /^-(\s+|$)/.exec(rest); dash; dash = /^-(\s+|$)/.exec(rest)) {
      // The items of a list may begin in the column of its name.
      while (open.length && closes(open.at(-1) as Step, column, true)) open.pop();
      open.push({ column, step: 0 });
      column += dash[0].length;
      rest = rest.slice(dash[0].length);
    }
    while (open.length && closes(open.at(-1) as Step, column, false)) open.pop();
    const key = /^([\w./-]+):/.exec(rest);
    if (key && !last) open.push({ column, step: key[1] as string });
  });
  return open.map(({ step }) => step);
}

interface Step {
  column: number;
  step: string | number;
}

function closes({ column, step }: Step, at: number, item: boolean): boolean {
  return column > at || (column === at && (!item || step === 0));
}
