/** The fields that most workloads need, as a form over the same text that the YAML editor shows. */

import { useQuery } from "@tanstack/react-query";
import { type ReactNode, useEffect, useId, useState } from "react";
import { get } from "../api/client";
import type { FreeCapacity } from "../api/types";
import { readable } from "../lib/format";
import { at, isObject, type Path, type Schema } from "../lib/json_schema";
import { isManifest } from "../lib/manifest";
import { commandLine, words } from "../lib/words";

interface Props {
  value: unknown;
  schema: Schema | undefined;
  onEdit: (path: Path, value: unknown) => void;
}

export function WorkloadForm({ value, schema, onEdit }: Props) {
  const { data: free } = useQuery({
    queryKey: ["tenant", "free"],
    queryFn: ({ signal }) => get<FreeCapacity>("/api/free", undefined, signal),
  });
  if (!isManifest(value)) return <p className="hint">The text is no workload at present: see the problems below, and correct them as YAML.</p>;
  const manifest = value;
  const container = Array.isArray(manifest.containers) && isObject(manifest.containers[0]) ? manifest.containers[0] : {};
  const resources = isObject(container.resources) ? container.resources : {};
  const main = (name: string): Path => ["containers", 0, name];
  const about = (path: Path) => (schema ? at(schema, manifest, path)[0]?.description : undefined) ?? field(schema, manifest, path);
  const pool = free?.pools.find((each) => each.pool === manifest.pool);
  const slots = [...new Set(["cpu", "memory", ...Object.keys(resources), ...(free?.pools ?? []).flatMap((each) => Object.keys(each.free))])];
  const text = (name: string) => (manifest[name] === undefined || manifest[name] === null ? "" : String(manifest[name]));
  return (
    <div className="form">
      <Group title="Basics">
        <Text label="Name" value={text("name")} onChange={(next) => onEdit(["name"], next || undefined)} hint="Letters, digits, dots and hyphens." />
        {manifest.kind !== "deployment" && (
          <Choice label="Type" value={text("type") || (manifest.kind === "lab" ? "interactive" : "batch")} options={["batch", "interactive", "inference", "system"]} onChange={(next) => onEdit(["type"], next)} />
        )}
        <div className="control">
        <label>
          <span>Pool</span>
          <select value={text("pool")} onChange={(event) => onEdit(["pool"], event.target.value || undefined)}>
            <option value="">Chosen by what it needs</option>
            {free?.pools.map((each) => (
              <option key={each.pool}>{each.pool}</option>
            ))}
          </select>
        </label>
          {pool && <small>{boxes(pool.boxes)}</small>}
        </div>
        <Text label="Priority" kind="number" value={text("priority")} placeholder="10" onChange={(next) => onEdit(["priority"], number(next))} hint="0 to 100; higher starts first." />
      </Group>
      <Group title="Program">
        <Text label="Image" value={container.image ? String(container.image) : ""} placeholder="none: a process on the node" onChange={(next) => onEdit(main("image"), next || undefined)} hint={about(main("image"))} />
        <Text
          label="Command"
          wide
          mono
          value={Array.isArray(container.command) ? commandLine(container.command) : ""}
          onChange={(next) => onEdit(main("command"), words(next).length ? words(next) : undefined)}
          hint="Quotes as in a shell. For pipes and variables: sh -c '…'."
        />
        <Environment value={isObject(container.environment) ? container.environment : {}} onChange={(next) => onEdit(main("environment"), next)} />
      </Group>
      <Group title="Resources of each task">
        {slots.map((slot) => (
          <Text
            key={slot}
            label={slot}
            value={resources[slot] === undefined ? "" : String(resources[slot])}
            placeholder={slot === "memory" ? "256Mi" : slot === "cpu" ? "500m" : "none"}
            onChange={(next) => onEdit(["containers", 0, "resources", slot], next || undefined)}
            hint={pool?.largest[slot] ? `at most ${readable(pool.largest[slot])} free on one node` : undefined}
          />
        ))}
      </Group>
      <Group title={manifest.kind === "deployment" ? "Replicas and rollout" : "Tasks"}>
        <Text label={manifest.kind === "deployment" ? "Replicas" : "Tasks"} kind="number" value={text("replicas")} placeholder="1" onChange={(next) => onEdit(["replicas"], number(next))} />
        {manifest.kind === "deployment" ? (
          <>
            <Text label="Surge" kind="number" value={rolloutText(manifest.rollout, "surge")} placeholder="1" onChange={(next) => onEdit(["rollout", "surge"], number(next))} hint="Maximum extra replicas during an update." />
            <Text label="Unavailable" kind="number" value={rolloutText(manifest.rollout, "unavailable")} placeholder="0" onChange={(next) => onEdit(["rollout", "unavailable"], number(next))} hint="Replicas that may be missing during an update." />
          </>
        ) : (
          <>
            <label className="check">
              <input type="checkbox" checked={manifest.gang === true} onChange={(event) => onEdit(["gang"], event.target.checked || undefined)} />
              Start all tasks together or none
            </label>
            <Text label="Time limit" value={text("time")} placeholder="as the pool says" onChange={(next) => onEdit(["time"], /^\d+$/.test(next) ? Number(next) : next || undefined)} hint="30m, 2h, 1-12:00:00 or seconds. With a limit it fits into gaps." />
          </>
        )}
      </Group>
      {manifest.kind === "lab" && (
        <Group title="Window">
          <Moment label="Start" value={text("start")} onChange={(next) => onEdit(["start"], next)} />
          <Text label="Duration" value={text("duration")} placeholder="1h" onChange={(next) => onEdit(["duration"], next || undefined)} hint="90m, 2h, 1-12:00:00" />
          <Text label="Lead" value={text("lead")} placeholder="as the pool says" onChange={(next) => onEdit(["lead"], next || undefined)} hint={about(["lead"])} />
        </Group>
      )}
    </div>
  );
}

function Group({ title, children }: { title: string; children: ReactNode }) {
  return (
    <fieldset>
      <legend>{title}</legend>
      <div className="fields">{children}</div>
    </fieldset>
  );
}

interface TextProps {
  label: string;
  value: string;
  onChange: (value: string) => void;
  placeholder?: string;
  hint?: string;
  kind?: "text" | "number";
  wide?: boolean;
  mono?: boolean;
}

/** A text field that keeps what is typed while its value is only written differently. */
function Text({ label, value, onChange, placeholder, hint, kind = "text", wide, mono }: TextProps) {
  const id = useId();
  const [typed, setTyped] = useState(value);
  const [editing, setEditing] = useState(false);
  useEffect(() => {
    if (!editing) setTyped(value);
  }, [value, editing]);
  return (
    <div className={wide ? "control wide" : "control"}>
      <label>
        <span>{label}</span>
        <input
        className={mono ? "mono" : undefined}
        type={kind}
        min={kind === "number" ? 0 : undefined}
        value={typed}
        placeholder={placeholder}
        aria-describedby={hint ? id : undefined}
        onFocus={() => setEditing(true)}
        onBlur={() => setEditing(false)}
        onChange={(event) => {
          setTyped(event.target.value);
          onChange(event.target.value);
        }}
      />
      </label>
      {hint && <small id={id}>{hint}</small>}
    </div>
  );
}

function Choice({ label, value, options, onChange }: { label: string; value: string; options: string[]; onChange: (value: string) => void }) {
  return (
    <label>
      <span>{label}</span>
      <select value={value} onChange={(event) => onChange(event.target.value)}>
        {options.map((option) => (
          <option key={option}>{option}</option>
        ))}
      </select>
    </label>
  );
}

function Moment({ label, value, onChange }: { label: string; value: string; onChange: (value: string) => void }) {
  const at = new Date(value);
  const local = Number.isNaN(at.getTime()) ? "" : new Date(at.getTime() - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
  return (
    <div className="control">
    <label>
      <span>{label}</span>
      <input type="datetime-local" value={local} onChange={(event) => event.target.value && onChange(new Date(event.target.value).toISOString().replace(".000", ""))} />
    </label>
      <small>{Intl.DateTimeFormat().resolvedOptions().timeZone}</small>
    </div>
  );
}

function Environment({ value, onChange }: { value: Record<string, unknown>; onChange: (value: Record<string, unknown> | undefined) => void }) {
  const written = Object.entries(value)
    .map(([name, each]) => `${name}=${each}`)
    .join("\n");
  const [typed, setTyped] = useState(written);
  const [editing, setEditing] = useState(false);
  useEffect(() => {
    if (!editing) setTyped(written);
  }, [written, editing]);
  return (
    <label className="wide">
      <span>Environment</span>
      <textarea
        rows={2}
        className="mono"
        value={typed}
        placeholder="NAME=value, one per line"
        onFocus={() => setEditing(true)}
        onBlur={() => setEditing(false)}
        onChange={(event) => {
          setTyped(event.target.value);
          const pairs = event.target.value.split("\n").map((line) => /^\s*([A-Za-z_]\w*)=(.*)$/.exec(line));
          const found = pairs.flatMap((pair) => (pair ? [[pair[1] as string, pair[2] as string] as const] : []));
          onChange(found.length ? Object.fromEntries(found) : undefined);
        }}
      />
    </label>
  );
}

function number(text: string): number | undefined {
  return text === "" || Number.isNaN(Number(text)) ? undefined : Number(text);
}

function rolloutText(rollout: unknown, name: string): string {
  const found = isObject(rollout) ? rollout[name] : undefined;
  return found === undefined || found === null ? "" : String(found);
}

function boxes(found: Record<string, string>[]): string {
  const first = found[0];
  if (!first) return "Nothing is free there now.";
  return `Starts now: up to ${Object.entries(first)
    .map(([slot, each]) => `${readable(each)} ${slot}`)
    .join(", ")}`;
}

/** The description of a field, which stands at the field itself rather than at its alternatives. */
function field(schema: Schema | undefined, manifest: unknown, path: Path): string | undefined {
  const name = path.at(-1);
  if (!schema || typeof name !== "string") return undefined;
  return at(schema, manifest, path.slice(0, -1)).find((each) => each.properties?.[name])?.properties?.[name]?.description;
}
