/** One node: its slots, devices, taints, isolation and measured tasks; drain and resume. */

import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useParams } from "@tanstack/react-router";
import { useState } from "react";
import { call, get } from "../api/client";
import type { DrainPreview, Node, TaskUseList } from "../api/types";
import { Ago, Bar, Empty, Field, Loading, Panel, Problem, Status } from "../components/basics";
import { Dialog } from "../components/dialog";
import { useMe } from "../components/layout";
import { deviceOwners } from "../lib/devices";
import { amount, count, percent, readable } from "../lib/format";

export function NodePage() {
  const { name } = useParams({ from: "/app/nodes/$name" });
  const { data: me } = useMe();
  const { data: node, error, refetch } = useQuery({
    queryKey: ["node", "detail", name],
    queryFn: ({ signal }) => get<Node>(`/api/nodes/${encodeURIComponent(name)}`, undefined, signal),
  });
  if (error && !node) return <Problem error={error} retry={() => void refetch()} />;
  if (!node) return <Loading />;
  return (
    <div className="page">
      <header className="title">
        <Link to="/nodes" className="crumb">
          Nodes
        </Link>
        <h1>{node.name}</h1>
        <Status value={node.draining ? "DRAINING" : node.status} />
        {node.simulated && <span className="tag">simulated</span>}
        <div className="spacer" />
        {me?.role === "admin" && <NodeActions node={node} />}
      </header>
      <p className="sentence">{nodeSentence(node)}</p>
      <dl className="facts">
        <Field name="Pool">{node.pool}</Field>
        <Field name="Region">{node.region ?? "–"}</Field>
        <Field name="Architecture">{node.architecture}</Field>
        <Field name="Runtimes">{node.runtimes.join(", ") || "–"}</Field>
        <Field name="Isolation">
          <span title={node.isolation_reason}>{node.isolation}</span>
        </Field>
        <Field name="Last seen">{node.simulated ? "simulated" : <Ago at={node.last_seen_at} />}</Field>
      </dl>
      <Panel title="Slots">
        <div className="table-wrap" tabIndex={0} role="region" aria-label="Slots">
          <table>
            <thead>
              <tr>
                <th>Slot</th>
                <th>Allocated</th>
                <th className="number">Used</th>
                <th className="number">Reserved</th>
                <th className="number">Held</th>
                <th className="number">Free</th>
                <th className="number">Allocatable</th>
                <th>Enforced by</th>
              </tr>
            </thead>
            <tbody>
              {Object.entries(node.slots).map(([slot, found]) => {
                const whole = amount(found.allocatable);
                const part = (value: string) => percent(amount(value), whole);
                return (
                  <tr key={slot}>
                    <td>{slot}</td>
                    <td>
                      <Bar
                        label={slot}
                        parts={[
                          { name: "used", value: part(found.used), tone: "used" },
                          { name: "reserved", value: part(found.reserved), tone: "reserved" },
                          { name: "held", value: part(found.held), tone: "held" },
                        ]}
                      />
                    </td>
                    {[found.used, found.reserved, found.held, found.free, found.allocatable].map((value, index) => (
                      // biome-ignore lint/suspicious/noArrayIndexKey: five columns, always the same ones.
                      <td key={index} className="number">
                        {readable(value)}
                      </td>
                    ))}
                    <td className="faint">{node.enforces[slot] ?? "–"}</td>
                  </tr>
                );
              })}
            </tbody>
          </table>
        </div>
      </Panel>
      <Devices node={node} />
      {(node.taints.length > 0 || Object.keys(node.labels).length > 0) && (
        <Panel title="Labels and taints">
          <p className="tags">
            {Object.entries(node.labels).map(([key, value]) => (
              <code key={key}>
                {key}={value}
              </code>
            ))}
            {node.taints.map((taint) => (
              <code key={`${taint.key} ${taint.effect}`} className="taint">
                {taint.key}
                {taint.value && `=${taint.value}`}:{taint.effect}
              </code>
            ))}
          </p>
        </Panel>
      )}
      <NodeTasks node={node} />
    </div>
  );
}

function nodeSentence(node: Node): string {
  if (node.draining) return `Is being drained${node.drain_reason ? `: ${node.drain_reason}` : ""}. It takes no new tasks; ${count(node.tasks, "task")} left.`;
  if (node.status !== "READY") return `Is ${node.status.toLowerCase()}${node.reason ? `: ${node.reason}` : ""}.`;
  if (!node.schedulable) return `Is ready but takes no new tasks${node.reason ? `: ${node.reason}` : ""}.`;
  return `Is ready and runs ${count(node.tasks, "task")}.`;
}

function useTasksOf(node: Node) {
  return useQuery({
    queryKey: ["workload", "on-node", node.name],
    queryFn: ({ signal }) => get<TaskUseList>("/api/usage/tasks", { node: node.name, limit: 200 }, signal),
  });
}

/** Each device with its shares and their owners, as far as the viewer may see them. */
function Devices({ node }: { node: Node }) {
  const { data } = useTasksOf(node);
  return Object.entries(node.devices).map(([slot, devices]) => (
    <Panel key={slot} title={`Devices: ${slot}`}>
      <ul className="devices">
        {devices.map((device) => {
          const owners = (deviceOwners(data?.tasks ?? [], slot).get(`${node.name} ${device.index}`) ?? []).map(({ task, share }) => ({ task, share: percent(share, device.capacity) }));
          const known = owners.reduce((sum, { share }) => sum + share, 0);
          const others = Math.max(0, percent(device.taken, device.capacity) - known);
          return (
            <li key={device.index}>
              <span>
                {device.index} {device.model && <strong>{device.model}</strong>}
              </span>
              <Bar
                label={`device ${device.index}`}
                parts={[
                  ...owners.map(({ task, share }) => ({ name: `${task.workload}.${task.index}`, value: share, tone: "used" })),
                  { name: "other work", value: others, tone: "reserved" },
                ]}
              />
              {owners.map(({ task, share }) => (
                <span key={task.task_id} className="faint">
                  {share.toFixed(0)} %{" "}
                  <Link to="/workloads/$ref" params={{ ref: task.workload_id }}>
                    {task.workload}
                  </Link>{" "}
                  {task.user}
                </span>
              ))}
            </li>
          );
        })}
      </ul>
    </Panel>
  ));
}

function NodeTasks({ node }: { node: Node }) {
  const { data, error } = useTasksOf(node);
  if (error) return <Problem error={error} />;
  return (
    <Panel title="Running tasks">
      {data && data.tasks.length === 0 && <Empty title="No task that you may see runs here." />}
      {data && data.tasks.length > 0 && (
        <div className="table-wrap" tabIndex={0} role="region" aria-label="Running tasks">
          <table>
            <thead>
              <tr>
                <th>Workload</th>
                <th className="number">Task</th>
                <th>User</th>
                <th className="number">CPU now</th>
                <th className="number">Memory now</th>
              </tr>
            </thead>
            <tbody>
              {data.tasks.map((task) => (
                <tr key={task.task_id}>
                  <td>
                    <Link to="/workloads/$ref" params={{ ref: task.workload_id }}>
                      {task.workload}
                    </Link>
                  </td>
                  <td className="number">{task.index}</td>
                  <td>{task.user}</td>
                  <td className="number">{task.cpu_millicores === null ? "–" : `${(task.cpu_millicores / 1000).toFixed(2)}`}</td>
                  <td className="number">{task.memory_bytes === null ? "–" : readable(`${Math.round(task.memory_bytes / 1024)}Ki`)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </Panel>
  );
}

function NodeActions({ node }: { node: Node }) {
  const [asking, setAsking] = useState(false);
  const client = useQueryClient();
  const [reason, setReason] = useState("");
  const [timeout, setTimeout] = useState("");
  const path = `/api/nodes/${encodeURIComponent(node.name)}`;
  const stopped = node.draining || !node.schedulable;

  async function act() {
    if (stopped) await call("POST", `${path}/resume`);
    else await call("POST", `${path}/drain`, { body: { reason: reason || null, timeout_seconds: timeout ? Number(timeout) : null } });
    await client.invalidateQueries({ queryKey: ["node"] });
  }

  return (
    <>
      <button type="button" className={stopped ? "primary" : "danger"} onClick={() => setAsking(true)}>
        {stopped ? "Resume" : "Drain"}
      </button>
      {asking && (
        <Dialog title={`${stopped ? "Resume" : "Drain"} ${node.name}?`} confirm={stopped ? "Resume it" : "Drain it"} danger={!stopped} onConfirm={act} onClose={() => setAsking(false)}>
          {stopped ? (
            <p>It takes new tasks again.</p>
          ) : (
            <>
              <Preview node={node} timeout={timeout !== ""} />
              <label>
                Tasks that are left
                <select value={timeout} onChange={(event) => setTimeout(event.target.value)}>
                  <option value="">run to their end</option>
                  {TIMEOUTS.map(([name, seconds]) => (
                    <option key={name} value={seconds}>
                      are stopped after {name}
                    </option>
                  ))}
                </select>
              </label>
              <label>
                Reason
                <input value={reason} maxLength={500} onChange={(event) => setReason(event.target.value)} placeholder="Shown to the owners of tasks" />
              </label>
            </>
          )}
        </Dialog>
      )}
    </>
  );
}

const TIMEOUTS = [
  ["10 minutes", 600],
  ["1 hour", 3600],
  ["8 hours", 28_800],
] as const;
const EFFECTS: Record<string, string> = { finishes: "runs to its end", requeued: "is requeued at the end of the time", ends: "is stopped at the end of the time" };
const PREVIEWED = 100;

/** The tasks that a drain moves, and the nodes that would take them now. */
function Preview({ node, timeout }: { node: Node; timeout: boolean }) {
  const { data, error } = useQuery({
    queryKey: ["workload", "drain", node.name, timeout],
    queryFn: ({ signal }) => get<DrainPreview>(`/api/nodes/${encodeURIComponent(node.name)}/drain`, { timeout }, signal),
  });
  if (error) return <Problem error={error} />;
  if (!data) return <Loading />;
  if (!data.tasks.length) return <p>No task runs here: the node is drained at once.</p>;
  return (
    <>
      <p>
        It takes no new tasks. Of its {count(data.tasks.length, "task")}, {data.moves} {data.moves === 1 ? "moves" : "move"} to other nodes
        {data.waiting > 0 && `; ${data.waiting} of them ${data.waiting === 1 ? "waits" : "wait"}, since no other node has capacity now`}.
      </p>
      <ul className="names" aria-label="Preview">
        {data.tasks.slice(0, PREVIEWED).map((task) => (
          <li key={task.task_id}>
            <strong>{task.workload}</strong>{" "}
            <span className="faint">
              task {task.index}, {task.user}
            </span>{" "}
            {task.effect === "moves" || task.effect === "requeued" ? (
              <span className={task.target ? undefined : "shortage"}>
                {task.effect === "requeued" && "requeued "}→ {task.target ?? "waits for capacity"}
              </span>
            ) : (
              EFFECTS[task.effect]
            )}
          </li>
        ))}
        {data.tasks.length > PREVIEWED && <li className="faint">and {data.tasks.length - PREVIEWED} more</li>}
      </ul>
      <p className="faint">The nodes are those that would take the tasks now. The choice is made when they move.</p>
    </>
  );
}
