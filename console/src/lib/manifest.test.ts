import { describe, expect, it } from "vitest";
import { KINDS } from "./kinds";
import { check, nearest, type Schema } from "./json_schema";
import { edited, labWindow, type Manifest, parse, pathAt, seconds, submission, suggestions, template } from "./manifest";
import { commandLine, words } from "./words";

const SCHEMA: Schema = {
  discriminator: { propertyName: "kind", mapping: { session: "#/$defs/Session", lab: "#/$defs/Lab" } },
  oneOf: [{ $ref: "#/$defs/Session" }, { $ref: "#/$defs/Lab" }],
  $defs: {
    Session: {
      type: "object",
      additionalProperties: false,
      required: ["kind", "containers"],
      properties: {
        kind: { const: "session" },
        name: { type: "string", pattern: "^[a-z]+$" },
        replicas: { type: "integer", minimum: 1, description: "Tasks." },
        restart: { anyOf: [{ enum: ["never", "always"], type: "string" }, { type: "null" }] },
        gang: { type: "boolean" },
        containers: { type: "array", minItems: 1, items: { $ref: "#/$defs/Container" } },
      },
    },
    Lab: { type: "object", properties: { kind: { const: "lab" }, start: { type: "string" } } },
    Container: {
      type: "object",
      additionalProperties: false,
      properties: { image: { type: "string" }, resources: { type: "object", additionalProperties: { anyOf: [{ type: "string" }, { type: "integer" }] } } },
    },
  },
};

describe("a workload file", () => {
  const text = "kind: session\nname: Bad\nreplica: 2\ncontainers:\n  - image: 7\n    resources: {cpu: 0.5}\n";

  it("has its problems at their lines", () => {
    expect(parse(text, SCHEMA).problems.map(({ line, message }) => [line, message])).toEqual([
      [2, "name: must match ^[a-z]+$"],
      [3, "there is no field replica; did you mean replicas?"],
      [5, "containers.0.image: must be text"],
    ]);
  });

  it("has a problem where it is no YAML", () => {
    expect(parse("kind: [session", SCHEMA).problems[0]?.line).toBe(1);
  });

  it("needs a kind that there is", () => {
    expect(check(SCHEMA, SCHEMA, { kind: "job" })[0]?.message).toBe("kind must be one of session, lab");
    expect(check(SCHEMA, SCHEMA, { kind: "session" })[0]?.message).toBe("containers is missing");
    expect(check(SCHEMA, SCHEMA, { kind: "session", containers: [], restart: "often" })).toHaveLength(2);
  });

  it("keeps its comments when a form changes a field", () => {
    const changed = edited("# mine\nkind: session\ncontainers: # one\n  - image: a\n", ["containers", 0, "resources", "cpu"], "500m");
    expect(parse(changed).value).toMatchObject({ containers: [{ image: "a", resources: { cpu: "500m" } }] });
    expect(changed).toContain("# mine\nkind: session\n");
    expect(changed).toContain("# one");
    expect(edited(changed, ["containers", 0, "image"], undefined)).not.toContain("image");
    expect(edited("kind: session\n", ["containers", 0, "command"], ["sh", "-c"])).toContain("command: [sh, -c]");
  });

  it("becomes the request for its kind, with exact amounts", () => {
    const { value } = parse("kind: lab\nstart: 2026-05-01T12:00:00Z\nduration: 1h\ncontainers: [{resources: {cpu: 0.5}}]");
    expect(submission(value as Manifest)).toEqual({
      path: "/api/labs",
      body: {
        start: "2026-05-01T12:00:00Z",
        duration: "1h",
        workload: { kind: "session", type: "interactive", containers: [{ resources: { cpu: "0.5" } }] },
      },
    });
    for (const kind of KINDS) expect(parse(template(kind)).value).toMatchObject({ kind });
  });
});

describe("completion", () => {
  it("knows the group that a line is in", () => {
    expect(pathAt("kind: session\ncontainers:\n  - image: a\n    resources:\n      c")).toEqual(["containers", 0, "resources"]);
    expect(pathAt("kind: session\ncontainers:\n  - image: a\n    ")).toEqual(["containers", 0]);
    expect(pathAt("kind: session\ncontainers:\n- i")).toEqual(["containers", 0]);
    expect(pathAt("containers:\n  - image: a\nre")).toEqual([]);
  });

  it("offers fields and values", () => {
    expect(suggestions(SCHEMA, "kind: session\nrep")?.options).toContainEqual({ label: "replicas", apply: "replicas: ", info: "Tasks." });
    expect(suggestions(SCHEMA, "kind: session\ncontainers:\n  - ")?.options.map(({ label }) => label)).toEqual(["image", "resources"]);
    expect(suggestions(SCHEMA, "kind: session\nrestart: n")?.options.map(({ label }) => label)).toEqual(["never", "always"]);
    expect(suggestions(SCHEMA, "kind: session\n# a comm")).toBeNull();
  });

  it("finds the name that was meant", () => {
    expect(nearest("comand", ["command", "image"])).toBe("command");
    expect(nearest("x", ["command"])).toBeUndefined();
  });
});

it("a command line has the words of a shell", () => {
  expect(words(`sh -c "echo \\"hi\\" you" 'a b' c\\ d`)).toEqual(["sh", "-c", 'echo "hi" you', "a b", "c d"]);
  expect(words(commandLine(["sh", "-c", "echo it's"]))).toEqual(["sh", "-c", "echo it's"]);
});

describe("labWindow", () => {
  it("reads durations as the API does", () => {
    const written: [unknown, number | null][] = [[90, 90], ["90", 90], ["90m", 5400], ["1h30m", 5400], ["2d", 172_800], ["1-12:00:00", 129_600], ["1-12:00", 129_600], ["2:30", 150], ["02:00:00", 7200], ["soon", null], ["", null], [undefined, null]];
    expect(written.map(([value]) => seconds(value))).toEqual(written.map(([, expected]) => expected));
  });

  it("ends after the duration, or at the end", () => {
    const lab = (fields: object) => labWindow({ kind: "lab", start: "2026-05-01T12:00:00Z", ...fields } as Manifest);
    const from = Date.parse("2026-05-01T12:00:00Z");
    expect(lab({ duration: "90m" })).toEqual({ from, to: from + 5_400_000 });
    expect(lab({ end: "2026-05-01T13:00:00Z" })).toEqual({ from, to: from + 3_600_000 });
    expect(lab({ end: "2026-05-01T11:00:00Z" })).toBeNull();
    expect(lab({})).toBeNull();
  });
});
