/** Pools: every option with its value and its explanation, both from the API. */

import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { get } from "../api/client";
import type { PoolList } from "../api/types";
import { Empty, Loading, Panel, Problem } from "../components/basics";
import { FormDialog } from "../components/form_dialog";
import { alternatives, isObject, resolve, type Schema } from "../lib/json_schema";
import { useChange } from "./admin_tenants";

interface Description {
  components: { schemas: Record<string, Schema> };
}

export interface Option {
  path: string[];
  about: string;
  types: Schema[];
}

/** The options of a request, those of nested groups included. */
export function options(root: Schema, schema: Schema, path: string[] = []): Option[] {
  return Object.entries(resolve(root, schema).properties ?? {}).flatMap(([name, property]) => {
    const types = alternatives(root, property).filter((each) => each.type !== "null");
    const group = types.find((each) => each.properties);
    if (group && !path.length) return options(root, group, [name]);
    const own = { path: [...path, name], about: resolve(root, property).description ?? "", types };
    return [own];
  });
}

export function PoolsPart({ name, onName }: { name: string | undefined; onName: (name: string) => void }) {
  const pools = useQuery({ queryKey: ["tenant", "pools"], queryFn: ({ signal }) => get<PoolList>("/api/pools", undefined, signal) });
  const description = useQuery({
    queryKey: ["openapi"],
    queryFn: ({ signal }) => get<Description>("/openapi.json", undefined, signal),
    staleTime: Number.POSITIVE_INFINITY,
    refetchInterval: false,
  });
  const change = useChange();
  const [search, setSearch] = useState("");
  const [chosen, setChosen] = useState<Option | null>(null);
  if (pools.error ?? description.error) return <Problem error={pools.error ?? description.error} />;
  if (!pools.data || !description.data) return <Loading />;
  const pool = pools.data.pools.find((each) => each.name === name) ?? pools.data.pools[0];
  if (!pool) return <Empty title="There is no pool yet." command="mooring pool create NAME" />;
  const schemas = description.data.components.schemas;
  const root: Schema = { $defs: schemas };
  const all = options(root, schemas.PoolChange ?? {}).filter((each) => `${each.path.join(".")} ${each.about}`.toLowerCase().includes(search.toLowerCase()));
  return (
    <Panel
      title={`Options of ${pool.name}`}
      aside={
        <div className="filters">
          <input type="search" aria-label="Search the options" placeholder="Search" value={search} onChange={(event) => setSearch(event.target.value)} />
          <select aria-label="Pool" value={pool.name} onChange={(event) => onName(event.target.value)}>
            {pools.data.pools.map((each) => (
              <option key={each.name}>{each.name}</option>
            ))}
          </select>
        </div>
      }
    >
      <ul className="options">
        {all.map((option) => (
          <li key={option.path.join(".")}>
            <div>
              <strong>{option.path.join(".")}</strong>
              <p className="faint">{option.about}</p>
            </div>
            <code>{shown(valueAt(pool, option.path))}</code>
            <button type="button" aria-label={`Change ${option.path.join(".")}`} onClick={() => setChosen(option)}>
              Change
            </button>
          </li>
        ))}
      </ul>
      {chosen && (
        <FormDialog
          title={`${chosen.path.join(".")} of ${pool.name}`}
          confirm="Change it"
          fields={[{ name: "value", label: "Value", options: choices(chosen), value: text(valueAt(pool, chosen.path)), hint: chosen.about, kind: plain(chosen) ? "text" : "area" }]}
          onSubmit={({ value = "" }) => change("PATCH", `/api/pools/${pool.name}`, body(pool, chosen, value))}
          onClose={() => setChosen(null)}
        />
      )}
    </Panel>
  );
}

function valueAt(pool: object, path: string[]): unknown {
  return path.reduce<unknown>((found, step) => (isObject(found) ? found[step] : undefined), pool);
}

function shown(value: unknown): string {
  return value === undefined || value === null || value === "" ? "–" : text(value);
}

function text(value: unknown): string {
  if (value === undefined || value === null) return "";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

function choices(option: Option): string[] | undefined {
  const listed = option.types.flatMap((each) => each.enum ?? (each.type === "boolean" ? [true, false] : []));
  return option.types.length === 1 && listed.length ? listed.map(String) : undefined;
}

function plain(option: Option): boolean {
  return option.types.every((each) => each.type !== "object" && each.type !== "array");
}

/** A group that is not merged by the server is sent whole. */
function body(pool: object, option: Option, value: string): Record<string, unknown> {
  const types = option.types.flatMap((each) => each.type ?? []);
  const whole = types.includes("boolean") || types.includes("object") || types.includes("array");
  const numeric = (types.includes("integer") || types.includes("number")) && /^-?\d+$/.test(value);
  const parsed: unknown = whole || numeric ? JSON.parse(value) : value;
  const [first = "", second] = option.path;
  if (second === undefined) return { [first]: parsed };
  const present = valueAt(pool, [first]);
  const others = isObject(present) ? Object.fromEntries(Object.entries(present).filter(([, each]) => each !== null)) : {};
  return { [first]: { ...(first === "preemption" || first === "health" ? others : {}), [second]: parsed } };
}
