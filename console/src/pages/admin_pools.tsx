/** Pools: every option with its value and its explanation, both from the API. */

import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { get } from "../api/client";
import type { PoolList } from "../api/types";
import { Empty, Loading, Panel, Problem } from "../components/basics";
import { Dialog } from "../components/dialog";
import { SchemaInput } from "../components/schema_input";
import { alternatives, isObject, resolve, type Schema } from "../lib/json_schema";
import { initial, inWords } from "../lib/schema_fields";
import { useChange } from "./admin_tenants";

interface Description {
  components: { schemas: Record<string, Schema> };
}

/** The schemas of the API, with their explanations. */
export function useDescription() {
  return useQuery({
    queryKey: ["openapi"],
    queryFn: async ({ signal }) => {
      const { schemas } = (await get<Description>("/openapi.json", undefined, signal)).components;
      return { schemas, root: { $defs: schemas } as Schema };
    },
    staleTime: Number.POSITIVE_INFINITY,
    refetchInterval: false,
  });
}

/** Groups that are sent whole, since they can also be absent. */
const WHOLE = new Set(["health"]);

export interface Option {
  path: string[];
  about: string;
  schema: Schema;
}

/** The options of a request, those of nested groups included. */
export function options(root: Schema, schema: Schema, path: string[] = []): Option[] {
  return Object.entries(resolve(root, schema).properties ?? {}).flatMap(([name, property]) => {
    const group = alternatives(root, property).find((each) => each.properties);
    if (group && !path.length && !WHOLE.has(name)) return options(root, group, [name]);
    return [{ path: [...path, name], about: resolve(root, property).description ?? "", schema: property }];
  });
}

export function PoolsPart({ name, onName }: { name: string | undefined; onName: (name: string) => void }) {
  const pools = useQuery({ queryKey: ["tenant", "pools"], queryFn: ({ signal }) => get<PoolList>("/api/pools", undefined, signal) });
  const description = useDescription();
  const [search, setSearch] = useState("");
  const [chosen, setChosen] = useState<Option | null>(null);
  if (pools.error ?? description.error) return <Problem error={pools.error ?? description.error} />;
  if (!pools.data || !description.data) return <Loading />;
  const pool = pools.data.pools.find((each) => each.name === name) ?? pools.data.pools[0];
  if (!pool) return <Empty title="There is no pool yet." command="mooring pool create NAME" />;
  const { root, schemas } = description.data;
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
            <span className="value">{inWords(valueAt(pool, option.path))}</span>
            <button type="button" aria-label={`Change ${option.path.join(".")}`} onClick={() => setChosen(option)}>
              Change
            </button>
          </li>
        ))}
      </ul>
      {chosen && <OptionDialog pool={pool} option={chosen} root={root} onClose={() => setChosen(null)} />}
    </Panel>
  );
}

function OptionDialog({ pool, option, root, onClose }: { pool: PoolList["pools"][number]; option: Option; root: Schema; onClose: () => void }) {
  const change = useChange();
  const name = option.path.join(".");
  const [value, setValue] = useState<unknown>(() => valueAt(pool, option.path) ?? initial(root, option.schema));
  return (
    <Dialog title={`${name} of ${pool.name}`} confirm="Change it" onConfirm={() => change("PATCH", `/api/pools/${pool.name}`, body(pool, option.path, value))} onClose={onClose}>
      <p className="faint">{option.about}</p>
      <div className="control">
        <SchemaInput root={root} schema={option.schema} label={name} value={value} onChange={setValue} />
      </div>
    </Dialog>
  );
}

function valueAt(pool: object, path: string[]): unknown {
  return path.reduce<unknown>((found, step) => (isObject(found) ? found[step] : undefined), pool);
}

/** Rules of preemption that are not sent have their defaults, so those that are set go with the one that changes. */
function body(pool: object, path: string[], value: unknown): Record<string, unknown> {
  const [first = "", second] = path;
  if (second === undefined) return { [first]: value };
  const present = first === "preemption" ? valueAt(pool, [first]) : undefined;
  const others = isObject(present) ? Object.fromEntries(Object.entries(present).filter(([, each]) => each !== null)) : {};
  return { [first]: { ...others, [second]: value } };
}
