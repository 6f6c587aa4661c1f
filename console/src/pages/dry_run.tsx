/** Where and when a workload would start, and what it takes of the quotas, again after each change of it. */

import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useEffect, useState } from "react";
import { call, get } from "../api/client";
import type { Explanation, FreeCapacity, Timeline } from "../api/types";
import { Ago, Field, Problem, Status } from "../components/basics";
import { Funnel } from "../components/funnel";
import { absolute, amount, count, readable } from "../lib/format";
import { fit, inBaseUnits } from "../lib/gantt";
import { isObject } from "../lib/json_schema";
import { labWindow, type Manifest, workloadRequest } from "../lib/manifest";
import { useNodes } from "./nodes";

const PAUSE_MILLISECONDS = 350;
const MAX_HOURS = 744;

/** The value once it has not changed for a moment. */
function useSettled<T>(value: T, milliseconds: number): T {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), milliseconds);
    return () => clearTimeout(timer);
  }, [value, milliseconds]);
  return settled;
}

export function DryRun({ manifest }: { manifest: Manifest | null }) {
  const body = manifest ? JSON.stringify(workloadRequest(manifest)) : "";
  const settled = useSettled(body, PAUSE_MILLISECONDS);
  // Another body is another query: that of the one before is aborted.
  const { data, error, isFetching, isPlaceholderData } = useQuery({
    queryKey: ["dry-run", settled],
    queryFn: ({ signal }) => call<Explanation>("POST", "/api/workloads/dry-run", { body: JSON.parse(settled), signal }),
    enabled: settled !== "" && manifest !== null,
    placeholderData: keepPreviousData,
    refetchInterval: 10_000,
    retry: false,
  });
  const outdated = body !== settled || isPlaceholderData;
  return (
    <section className={outdated ? "panel dry-run outdated" : "panel dry-run"} aria-label="Dry run" aria-busy={isFetching || outdated}>
      <header>
        <h2>Dry run</h2>
        <span className="faint" role="status">
          {!manifest ? "waits for a valid workload" : outdated || isFetching ? "asks the scheduler…" : "current"}
        </span>
      </header>
      <div className="content">
        {manifest && error && !isFetching && <Problem error={error} />}
        {manifest?.kind === "lab" && data && <LabWindow manifest={manifest} pool={data.pool} />}
        {manifest && data && !(error && !isFetching) && <Result explanation={data} lab={manifest.kind === "lab"} />}
        {!manifest && !data && <p className="faint">As soon as the text is valid, this shows where and when its tasks would start.</p>}
        {manifest && <QuotaImpact manifest={manifest} />}
      </div>
    </section>
  );
}

/** Whether the tasks of a lab fit into its window, which is booked; where they run is chosen when it begins. */
function LabWindow({ manifest, pool }: { manifest: Manifest; pool: string }) {
  const window = labWindow(manifest);
  const hours = window ? Math.ceil((window.to - Date.now()) / 3_600_000) : 0;
  const { data: list } = useNodes();
  const nodes = (list?.nodes ?? []).filter((each) => each.pool === pool);
  const enabled = window !== null && hours >= 1 && hours <= MAX_HOURS && nodes.length > 0;
  const steps = Math.max(1, Math.min(400, hours * 4, Math.floor(40_000 / Math.max(1, nodes.length))));
  const { data: timeline, error } = useQuery({
    queryKey: ["timeslot", "fit", pool, hours, steps],
    queryFn: ({ signal }) => get<Timeline>("/api/timeline", { pool, hours, steps, nodes: true }, signal),
    enabled,
  });
  if (!window) return <p className="faint">As soon as the window has a start and an end, this shows how many tasks fit into it.</p>;
  if (window.to <= Date.now()) return <p className="conflict">The window is over. Choose a later start.</p>;
  if (error) return <Problem error={error} />;
  if (!timeline) return <p className="faint">{hours > MAX_HOURS ? "Free capacity is known for the next 31 days only." : "Looks for free capacity…"}</p>;
  const replicas = typeof manifest.replicas === "number" ? manifest.replicas : 1;
  const { sessions: _, ...each } = requests({ ...manifest, replicas: 1 });
  const base = Object.fromEntries(Object.entries(each).map(([slot, value]) => [slot, inBaseUnits(slot, value, nodes, timeline)]));
  const { tasks } = fit(timeline, [], pool, base, window);
  const short = tasks < replicas;
  return (
    <p className={short ? "conflict" : "sentence"} role="status">
      {short ? `Conflict: only ${tasks} of ${count(replicas, "task")} fit` : `${count(replicas, "task")} of at most ${tasks} fit`} throughout{" "}
      {absolute(new Date(window.from))} to {absolute(new Date(window.to))}.
    </p>
  );
}

function Result({ explanation, lab }: { explanation: Explanation; lab: boolean }) {
  const placed = new Map<string, number>();
  for (const task of explanation.tasks) if (task.node) placed.set(task.node, (placed.get(task.node) ?? 0) + 1);
  const nodes = [...placed].sort((a, b) => b[1] - a[1]);
  return (
    <>
      <p className={lab ? "faint" : "sentence"}>
        {lab ? "Without a booking: " : <Status value={{ placed: "READY", waiting: "PENDING" }[explanation.outcome as string] ?? "FAILED"} />} {verdict(explanation)}
      </p>
      <p className="faint">{explanation.summary}</p>
      <dl className="facts">
        <Field name="Pool">{explanation.pool}</Field>
        {explanation.ahead != null && explanation.outcome === "waiting" && <Field name="Ahead in the queue">{count(explanation.ahead, "workload")}</Field>}
        {explanation.estimated_start && (
          <Field name="Estimated start">
            <Ago at={explanation.estimated_start} />
          </Field>
        )}
        {explanation.unless && <Field name="Pending unless">{explanation.unless}</Field>}
      </dl>
      {nodes.length > 0 && (
        <ul className="names" aria-label="Nodes">
          {nodes.slice(0, 10).map(([node, tasks]) => (
            <li key={node}>
              <Link to="/nodes/$name" params={{ name: node }}>
                {node}
              </Link>{" "}
              <span className="faint">{count(tasks, "task")}</span>
            </li>
          ))}
          {nodes.length > 10 && <li className="faint">and {count(nodes.length - 10, "more node")}</li>}
        </ul>
      )}
      {explanation.nodes > 0 && explanation.outcome !== "placed" && <Funnel explanation={explanation} />}
    </>
  );
}

function verdict(explanation: Explanation): string {
  const why = explanation.reason && typeof explanation.reason.message === "string" ? `: ${explanation.reason.message}` : "";
  if (explanation.outcome === "placed") return explanation.simulated ? "Would start now (simulated)." : "Would start now.";
  if (explanation.outcome === "waiting") return `Would wait${why}.`;
  if (explanation.outcome === "impossible") return `Cannot start as things are${why}.`;
  return `Cannot be placed${why}.`;
}

/** What it takes of each limited slot, of what is left there. */
function QuotaImpact({ manifest }: { manifest: Manifest }) {
  const { data } = useQuery({
    queryKey: ["tenant", "free"],
    queryFn: ({ signal }) => get<FreeCapacity>("/api/free", undefined, signal),
  });
  const takes = requests(manifest);
  const rows = (data?.quotas ?? []).flatMap(({ scope, name, left }) =>
    Object.entries(left)
      .filter(([slot]) => slot in takes)
      .map(([slot, rest]) => ({ scope, name, slot, takes: takes[slot] ?? 0, rest })),
  );
  if (!data || !rows.length) return data ? <p className="faint">No quota limits what it requests.</p> : null;
  return (
    <div className="table-wrap" tabIndex={0} role="region" aria-label="Quota impact">
      <table>
        <caption className="hidden">Quota impact</caption>
        <thead>
          <tr>
            <th>Quota</th>
            <th>Slot</th>
            <th className="number">Takes</th>
            <th className="number">Of those left</th>
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={`${row.scope} ${row.name} ${row.slot}`} className={row.takes > amount(row.rest) ? "over" : undefined}>
              <td>
                {row.scope} {row.name}
              </td>
              <td>{row.slot}</td>
              <td className="number">{shown(row.slot, row.takes)}</td>
              <td className="number">{readable(row.rest)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function shown(slot: string, value: number): string {
  return slot === "memory" ? readable(`${Math.round(value / 1024)}Ki`) : `${Number(value.toFixed(3))}`;
}

/** The amounts of all tasks: those of containers side by side add up. */
export function requests(manifest: Manifest): Record<string, number> {
  const sums: Record<string, number> = { sessions: 1 };
  const replicas = typeof manifest.replicas === "number" ? manifest.replicas : 1;
  for (const container of Array.isArray(manifest.containers) ? manifest.containers : []) {
    if (!isObject(container)) continue;
    const limits = isObject(container.limits) ? container.limits : {};
    const resources = isObject(container.resources) ? container.resources : {};
    for (const [slot, value] of Object.entries({ ...limits, ...resources })) sums[slot] = (sums[slot] ?? 0) + amount(String(value)) * replicas;
  }
  return sums;
}
