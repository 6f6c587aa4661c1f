/** The part of JSON Schema that the API's descriptions use: what a value may be, and what is wrong with one. */

export interface Schema {
  $ref?: string;
  $defs?: Record<string, Schema>;
  title?: string;
  description?: string;
  type?: string | string[];
  const?: unknown;
  enum?: unknown[];
  default?: unknown;
  properties?: Record<string, Schema>;
  required?: string[];
  additionalProperties?: boolean | Schema;
  patternProperties?: Record<string, Schema>;
  propertyNames?: Schema;
  items?: Schema;
  anyOf?: Schema[];
  oneOf?: Schema[];
  allOf?: Schema[];
  pattern?: string;
  minLength?: number;
  maxLength?: number;
  minimum?: number;
  maximum?: number;
  minItems?: number;
  maxItems?: number;
  discriminator?: { propertyName: string; mapping: Record<string, string> };
}

export type Path = readonly (string | number)[];

export interface Violation {
  path: Path;
  message: string;
  /** The name of a field that is not known, of which the key is wrong and not the value. */
  key?: string;
}

/** The schema that a reference names, and the schema itself if it is none. */
export function resolve(root: Schema, schema: Schema): Schema {
  let found = schema;
  for (let depth = 0; found.$ref && depth < 20; depth++) {
    const name = found.$ref.split("/").at(-1) as string;
    const { $ref: _, ...own } = found;
    found = { ...root.$defs?.[name], ...own };
  }
  return found;
}

/** The schemas of which a value needs to match one. */
export function alternatives(root: Schema, schema: Schema): Schema[] {
  const found = resolve(root, schema);
  const parts = found.anyOf ?? found.oneOf;
  return parts ? parts.flatMap((part) => alternatives(root, part)) : [found];
}

/** The alternatives of a value that fit the value's discriminator, where the schema has one. */
export function choose(root: Schema, schema: Schema, value: unknown): Schema {
  const found = resolve(root, schema);
  if (!found.discriminator || !isObject(value)) return found;
  const ref = found.discriminator.mapping[String(value[found.discriminator.propertyName])];
  return ref ? resolve(root, { $ref: ref }) : found;
}

/** The schemas of what is at a path of a value. */
export function at(root: Schema, value: unknown, path: Path): Schema[] {
  let found = alternatives(root, choose(root, root, value));
  for (const step of path) {
    found = found.flatMap((schema) => {
      if (typeof step === "number") return schema.items ? alternatives(root, schema.items) : [];
      const inner = schema.properties?.[step] ?? (isSchema(schema.additionalProperties) ? schema.additionalProperties : undefined);
      return inner ? alternatives(root, inner) : [];
    });
  }
  return found;
}

/** All that is wrong with a value. */
export function check(root: Schema, schema: Schema, value: unknown, path: Path = []): Violation[] {
  const found = choose(root, schema, value);
  if (found.discriminator && isObject(value)) {
    const name = found.discriminator.propertyName;
    const allowed = Object.keys(found.discriminator.mapping);
    return [{ path: name in value ? [...path, name] : path, message: `${name} must be one of ${list(allowed)}` }];
  }
  const options = found.anyOf ?? found.oneOf;
  if (options) return checkOptions(root, options, value, path);
  const here = (message: string): Violation[] => [{ path, message }];
  if (found.const !== undefined && value !== found.const) return here(`must be ${show(found.const)}`);
  if (found.enum && !found.enum.includes(value)) return here(`must be one of ${list(found.enum)}`);
  if (found.type && !hasType(found.type, value)) return here(`must be ${[found.type].flat().map(article).join(" or ")}`);
  if (typeof value === "string") return checkText(found, value, here);
  if (typeof value === "number") {
    if (found.minimum !== undefined && value < found.minimum) return here(`must be at least ${found.minimum.toLocaleString("en")}`);
    if (found.maximum !== undefined && value > found.maximum) return here(`must be at most ${found.maximum.toLocaleString("en")}`);
    return [];
  }
  if (Array.isArray(value)) {
    if (found.minItems !== undefined && value.length < found.minItems) return here(`needs at least ${found.minItems}`);
    if (found.maxItems !== undefined && value.length > found.maxItems) return here(`has at most ${found.maxItems}`);
    const { items } = found;
    return items ? value.flatMap((each, index) => check(root, items, each, [...path, index])) : [];
  }
  return isObject(value) ? checkObject(root, found, value, path) : [];
}

function checkOptions(root: Schema, options: Schema[], value: unknown, path: Path): Violation[] {
  const tried = options.map((option) => ({ option: resolve(root, option), wrong: check(root, option, value, path) }));
  if (tried.some(({ wrong }) => wrong.length === 0)) return [];
  // What is wrong with the alternative of the same type says more than that none matches.
  const close = tried.filter(({ option }) => !option.type || hasType(option.type, value));
  if (close.length) return (close[0] as (typeof tried)[number]).wrong;
  const types = [...new Set(tried.flatMap(({ option }) => option.type ?? []))].filter((type) => type !== "null");
  return [{ path, message: types.length ? `must be ${types.map(article).join(" or ")}` : "has no value that is allowed" }];
}

function checkText(schema: Schema, value: string, here: (message: string) => Violation[]): Violation[] {
  if (schema.minLength !== undefined && value.length < schema.minLength) return here("must not be empty");
  if (schema.maxLength !== undefined && value.length > schema.maxLength) return here(`has at most ${schema.maxLength} characters`);
  if (schema.pattern && !matches(schema.pattern, value)) return here(`must match ${schema.pattern}`);
  return [];
}

function checkObject(root: Schema, schema: Schema, value: Record<string, unknown>, path: Path): Violation[] {
  const found: Violation[] = [];
  for (const name of schema.required ?? []) {
    if (!(name in value)) found.push({ path, message: `${name} is missing` });
  }
  for (const [name, inner] of Object.entries(value)) {
    const known = schema.properties?.[name];
    if (known) found.push(...check(root, known, inner, [...path, name]));
    else if (isSchema(schema.additionalProperties)) found.push(...check(root, schema.additionalProperties, inner, [...path, name]));
    else if (schema.additionalProperties === false) {
      const near = nearest(name, Object.keys(schema.properties ?? {}));
      found.push({ path, key: name, message: `there is no field ${name}${near ? `; did you mean ${near}?` : ""}` });
    }
  }
  return found;
}

function hasType(type: string | string[], value: unknown): boolean {
  return [type].flat().some((each) => {
    if (each === "null") return value === null;
    if (each === "integer") return Number.isInteger(value);
    if (each === "array") return Array.isArray(value);
    if (each === "object") return isObject(value);
    return typeof value === each;
  });
}

/** A pattern that this engine cannot read is left to the server. */
function matches(pattern: string, value: string): boolean {
  try {
    return new RegExp(pattern, "u").test(value);
  } catch {
    return true;
  }
}

/** The name that differs least, if it is similar. */
export function nearest(name: string, names: readonly string[]): string | undefined {
  const ranked = names.map((each) => ({ each, distance: distance(name, each) })).sort((a, b) => a.distance - b.distance);
  const best = ranked[0];
  return best && best.distance <= Math.max(1, Math.floor(name.length / 3)) ? best.each : undefined;
}

function distance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, index) => index);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      next[j] = Math.min((row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1, (row[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1));
    }
    row = next;
  }
  return row[b.length] ?? 0;
}

export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function isSchema(value: boolean | Schema | undefined): value is Schema {
  return typeof value === "object";
}

function article(type: string): string {
  const words: Record<string, string> = { integer: "a whole number", array: "a list", object: "a group of fields", boolean: "true or false", null: "empty", string: "text" };
  return words[type] ?? `a ${type}`;
}

function list(values: readonly unknown[]): string {
  return values.map(show).join(", ");
}

function show(value: unknown): string {
  return typeof value === "string" ? value : JSON.stringify(value);
}
