/** The devices of all nodes, such as GPUs: each with its shares and their owners, as far as the viewer may see them. */

import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useVirtualizer } from "@tanstack/react-virtual";
import { useMemo, useRef } from "react";
import { get } from "../api/client";
import type { Node, TaskUse, TaskUseList } from "../api/types";
import { Bar, Empty, Problem } from "../components/basics";
import { deviceOwners, type Owner } from "../lib/devices";
import { byName, percent } from "../lib/format";

const ROW = 62;

export function DeviceMap({ nodes, slot }: { nodes: Node[]; slot: string }) {
  const scroller = useRef<HTMLDivElement>(null);
  const rows = useMemo(
    () => nodes.filter((node) => node.devices[slot]?.length).sort(byName),
    [nodes, slot],
  );
  const { data, error } = useQuery({
    queryKey: ["workload", "devices"],
    queryFn: ({ signal }) => get<TaskUseList>("/api/usage/tasks", { limit: 1000 }, signal),
  });
  const owners = useMemo(() => deviceOwners(data?.tasks ?? [], slot), [data, slot]);
  const virtual = useVirtualizer({ count: rows.length, getScrollElement: () => scroller.current, estimateSize: () => ROW, overscan: 6 });
  if (error) return <Problem error={error} />;
  if (!rows.length) return <Empty title={`No node here has devices of ${slot}.`} />;
  const all = rows.flatMap((node) => node.devices[slot] ?? []);
  const taken = all.reduce((sum, device) => sum + device.taken, 0);
  const capacity = all.reduce((sum, device) => sum + device.capacity, 0);
  return (
    <>
      <p className="faint">
        {all.length} devices on {rows.length} nodes; {percent(taken, capacity).toFixed(0)} % allocated, {all.filter((device) => !device.taken).length} entirely free.
      </p>
      <div className="device-map" ref={scroller} tabIndex={0} role="region" aria-label={`Devices: ${slot}`}>
        <div style={{ height: virtual.getTotalSize() }}>
          {virtual.getVirtualItems().map((item) => {
            const node = rows[item.index] as Node;
            return (
              <div key={node.name} className="row" style={{ transform: `translateY(${item.start}px)` }}>
                <Link to="/nodes/$name" params={{ name: node.name }}>
                  {node.name}
                </Link>
                <ul>
                  {(node.devices[slot] ?? []).map((device) => (
                    <Device key={device.index} device={device} owners={owners.get(`${node.name} ${device.index}`) ?? []} />
                  ))}
                </ul>
              </div>
            );
          })}
        </div>
      </div>
    </>
  );
}

function Device({ device, owners }: { device: Node["devices"][string][number]; owners: Owner[] }) {
  const parts = owners.map(({ task, share }) => ({ name: nameOf(task), value: percent(share, device.capacity), tone: "used" }));
  const others = percent(device.taken, device.capacity) - parts.reduce((sum, part) => sum + part.value, 0);
  const first = owners[0]?.task;
  const text = owners.map(({ task, share }) => `${percent(share, device.capacity).toFixed(0)} % ${nameOf(task)} of ${task.user}`).join(", ");
  return (
    <li className={device.taken ? undefined : "idle"} title={text || undefined}>
      <span className="faint">
        {device.index} {device.model ?? ""}
      </span>
      <Bar label={`Device ${device.index}`} parts={[...parts, { name: "other work", value: Math.max(0, others), tone: "reserved" }]} />
      {first ? (
        <span className="clip">
          <Link to="/workloads/$ref" params={{ ref: first.workload_id }}>
            {first.workload}
          </Link>
          {owners.length > 1 && <span className="faint"> and {owners.length - 1} more</span>}
        </span>
      ) : (
        <span className="faint">{device.taken ? "other work" : "free"}</span>
      )}
    </li>
  );
}

function nameOf(task: TaskUse): string {
  return `${task.workload}.${task.index}`;
}
