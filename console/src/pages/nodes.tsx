/** All nodes: a heat map of any slot with the same nodes as a list, or their devices with the owners of the shares. */

import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { memo, useDeferredValue, useMemo, useState } from "react";
import { call, get } from "../api/client";
import type { JoinToken, Node, NodeList } from "../api/types";
import { Ago, Bar, Empty, Loading, Problem, Status } from "../components/basics";
import { FormButton, ShownOnce } from "../components/form_dialog";
import { HeatMap } from "../components/heat_map";
import { useMe } from "../components/layout";
import { byName, count, readable } from "../lib/format";
import { FIGURES, type Figure, levelBy } from "../lib/heat";
import { type NodesSearch, VIEWS } from "../lib/nodes_search";
import { DeviceMap } from "./device_map";

const LISTED = 300;
const MANY = 500;
export function useNodes() {
  return useQuery({
    queryKey: ["node", "list"],
    queryFn: ({ signal }) => get<NodeList>("/api/nodes", undefined, signal),
    // Thousands of nodes take the server half a second; events say when one of them changes.
    refetchInterval: (query) => ((query.state.data?.nodes.length ?? 0) > MANY ? 1_800_000 : 60_000),
  });
}

export function Nodes() {
  const { slot: asked, by = "pool", figure = "allocated", view = "map" } = useSearch({ from: "/app/nodes" });
  const navigate = useNavigate({ from: "/nodes" });
  const { data: me } = useMe();
  const { data, error, refetch } = useNodes();
  const [search, setSearch] = useState("");
  const nodes = data?.nodes;
  const slots = useMemo(() => slotsOf(nodes ?? []), [nodes]);
  const groupings = useMemo(() => ["pool", "region", "status", ...labelsOf(nodes ?? [])], [nodes]);
  const slot = asked && slots.includes(asked) ? asked : "cpu";
  const devices = useMemo(() => [...new Set((nodes ?? []).flatMap((node) => Object.keys(node.devices)))].sort(), [nodes]);
  const deviceSlot = asked && devices.includes(asked) ? asked : devices[0];
  const change = (part: NodesSearch) => void navigate({ search: (before) => ({ ...before, ...part }), replace: true });
  const shown = useMemo(() => (nodes ?? []).filter((node) => node.name.includes(search)).sort(byName), [nodes, search]);
  // The map changes first, the long table after it.
  const listed = useDeferredValue(slot);
  if (error && !nodes) return <Problem error={error} retry={() => void refetch()} />;
  if (!nodes) return <Loading />;
  return (
    <div className="page">
      <header className="title">
        <h1>Nodes</h1>
        <span className="faint">
          {count(nodes.length, "node")}, {nodes.filter((node) => node.status === "READY").length} ready
        </span>
        <div className="spacer" />
        {me?.role === "admin" && <Join pools={[...new Set(["default", ...nodes.filter((node) => !node.simulated).map((node) => node.pool)])]} />}
      </header>
      <div className="filters">
        <input type="search" aria-label="Filter by name" placeholder="Filter by name" value={search} onChange={(event) => setSearch(event.target.value)} />
        <div className="chips" role="group" aria-label="View">
          {VIEWS.map((each) => (
            <button key={each} type="button" aria-pressed={each === view} disabled={each === "devices" && !devices.length} onClick={() => change({ view: each === "map" ? undefined : each })}>
              {each === "map" ? "heat map" : each}
            </button>
          ))}
        </div>
        {view === "map" ? (
          <>
            <Choice label="Slot" value={slot} options={slots} onChange={(next) => change({ slot: next })} />
            <Choice label="Show" value={figure} options={FIGURES} onChange={(next) => change({ figure: next === "allocated" ? undefined : next })} />
            <Choice label="Group" value={by} options={groupings} onChange={(next) => change({ by: next })} />
          </>
        ) : (
          <Choice label="Devices" value={deviceSlot ?? ""} options={devices} onChange={(next) => change({ slot: next })} />
        )}
        <div className="spacer" />
        {view === "map" && <Legend figure={figure} slot={slot} />}
      </div>
      {nodes.length === 0 ? (
        <Empty title="No machine has joined yet. An admin makes a token for one:" command="mooring token create --name NODE" />
      ) : view === "devices" && deviceSlot ? (
        <DeviceMap nodes={shown} slot={deviceSlot} />
      ) : (
        <>
          <HeatMap nodes={shown} slot={slot} by={by} figure={figure} onOpen={(name) => void navigate({ to: "/nodes/$name", params: { name } })} />
          <NodeTable nodes={shown} slot={listed} figure={figure} />
        </>
      )}
    </div>
  );
}

function Choice<T extends string>({ label, value, options, onChange }: { label: string; value: T; options: readonly T[]; onChange: (value: T) => void }) {
  return (
    <label>
      {label}{" "}
      <select value={value} onChange={(event) => onChange(event.target.value as T)}>
        {options.map((each) => (
          <option key={each}>{each}</option>
        ))}
      </select>
    </label>
  );
}

/** A token for one machine, with the command that joins it. */
function Join({ pools }: { pools: string[] }) {
  const [command, setCommand] = useState("");
  return (
    <>
      <FormButton
        label="Add a node"
        title="Add a node"
        confirm="Make a token"
        fields={[
          { name: "name", label: "Name", required: true },
          { name: "pool", label: "Pool", options: pools },
        ]}
        onSubmit={async ({ name, pool }) => {
          const made = await call<JoinToken>("POST", "/api/join-tokens", { body: { name, pool } });
          setCommand(`MOORING_JOIN_TOKEN=${made.token} mooring agent --server ${location.origin} --name ${made.name}`);
        }}
      />
      {command && <ShownOnce title="Run this on the machine" text={command} onClose={() => setCommand("")} />}
    </>
  );
}

const NodeTable = memo(function NodeTable({ nodes, slot, figure }: { nodes: Node[]; slot: string; figure: Figure }) {
  const levelOf = levelBy(figure, nodes, slot);
  return (
    <>
      <div className="table-wrap" tabIndex={0} role="region" aria-label="Nodes">
        <table>
          <thead>
            <tr>
              <th>Node</th>
              <th>Status</th>
              <th>Pool</th>
              <th>
                {FIGURE_NAMES[figure]} {slot}
              </th>
              <th className="number">Free</th>
              <th className="number">Of</th>
              <th className="number">Tasks</th>
              <th>Last seen</th>
            </tr>
          </thead>
          <tbody>
            {nodes.slice(0, LISTED).map((node) => (
              <tr key={node.name}>
                <td>
                  <Link to="/nodes/$name" params={{ name: node.name }}>
                    {node.name}
                  </Link>
                </td>
                <td>
                  <Status value={node.draining ? "DRAINING" : node.status} />
                </td>
                <td>{node.pool}</td>
                <td>
                  <Level value={levelOf(node)} slot={slot} figure={figure} />
                </td>
                <td className="number">{readable(node.slots[slot]?.free ?? "0")}</td>
                <td className="number">{readable(node.slots[slot]?.allocatable ?? "0")}</td>
                <td className="number">{node.tasks}</td>
                <td>{node.simulated ? <span className="faint">simulated</span> : <Ago at={node.last_seen_at} />}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {nodes.length > LISTED && <p className="faint">The first {LISTED}; filter by name to see others.</p>}
    </>
  );
});

const FIGURE_NAMES: Record<Figure, string> = { allocated: "Allocated", free: "Free", measured: "Measured" };
const LEGENDS: Record<Figure, [string, string]> = { allocated: ["free", "full"], free: ["none free", "most free"], measured: ["idle", "busy"] };

function Level({ value, slot, figure }: { value: number | null; slot: string; figure: Figure }) {
  return value === null ? <span className="faint">not measured</span> : <Bar label={slot} parts={[{ name: figure, value: value * 100, tone: "used" }]} />;
}

function Legend({ figure, slot }: { figure: Figure; slot: string }) {
  const [least, most] = LEGENDS[figure];
  const missing = figure === "measured" ? (slot === "cpu" || slot === "memory" ? "not measured" : "agents measure cpu and memory") : "takes no work";
  return (
    <span className="legend" aria-hidden="true">
      {least} <i className="ramp" /> {most} <i className="off" /> {missing}
    </span>
  );
}

function slotsOf(nodes: Node[]): string[] {
  const found = new Set(nodes.flatMap((node) => Object.keys(node.slots)));
  return ["cpu", "memory", ...[...found].filter((slot) => slot !== "cpu" && slot !== "memory").sort()].filter((slot) => found.has(slot));
}

function labelsOf(nodes: Node[]): string[] {
  return [...new Set(nodes.flatMap((node) => Object.keys(node.labels)))].sort().slice(0, 20);
}
