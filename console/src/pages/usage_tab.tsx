/** The measured use of a workload, and the slot hours that it has used so far. */

import { useQuery } from "@tanstack/react-query";
import { get } from "../api/client";
import type { WorkloadDetail, WorkloadUsage } from "../api/types";
import { Empty, Field, Loading, Problem } from "../components/basics";
import { Chart } from "../components/chart";
import { amount, duration, readable } from "../lib/format";

const SHOWN: { slot: string; label: string; show: (value: number) => string }[] = [
  { slot: "cpu", label: "CPU", show: (value) => `${(value / 1000).toFixed(2)} cores` },
  { slot: "memory", label: "Memory", show: (value) => readable(`${Math.round(value / 1024)}Ki`) },
  { slot: "gpu", label: "GPU", show: (value) => `${(value / 1000).toFixed(2)} devices busy` },
  { slot: "gpu-memory", label: "GPU memory", show: (value) => readable(`${Math.round(value / 1024)}Ki`) },
  { slot: "read", label: "Disk reads", show: rate },
  { slot: "written", label: "Disk writes", show: rate },
  { slot: "received", label: "Network in", show: rate },
  { slot: "sent", label: "Network out", show: rate },
];

export function UsageTab({ workload }: { workload: WorkloadDetail }) {
  const { data, error } = useQuery({
    queryKey: ["workload", "usage", workload.id],
    queryFn: ({ signal }) => get<WorkloadUsage>(`/api/usage/workloads/${workload.id}`, { hours: 24 }, signal),
  });
  if (error) return <Problem error={error} />;
  if (!data) return <Loading />;
  const seconds = taskSeconds(workload);
  const limits: Record<string, number> = {
    cpu: amount(workload.resources.cpu ?? "0") * 1000 * workload.running,
    memory: amount(workload.resources.memory ?? "0") * workload.running,
    gpu: amount(workload.resources.gpu ?? "0") * 1000 * workload.running,
  };
  return (
    <>
      <dl className="facts" aria-label="Slot hours">
        <Field name="Task time">{duration(seconds)}</Field>
        {Object.entries(workload.resources).map(([slot, value]) => (
          <Field key={slot} name={slot === "memory" ? "memory, Gi hours" : `${slot} hours`}>
            {(((slot === "memory" ? amount(value) / 2 ** 30 : amount(value)) * seconds) / 3600).toFixed(2)}
          </Field>
        ))}
      </dl>
      {data.points.length === 0 ? (
        <Empty title={workload.simulated ? "Simulated tasks use nothing, so nothing is measured." : "Nothing has been measured yet: agents measure once a minute."} command="mooring top" />
      ) : (
        <div className="charts">
          {SHOWN.map(({ slot, label, show }) => {
            const points = data.points.filter((point) => slot in point.amounts).map((point) => ({ at: Date.parse(point.at), value: point.amounts[slot] ?? 0 }));
            return <Chart key={slot} label={label} points={points} show={show} limit={limits[slot] || undefined} />;
          })}
        </div>
      )}
    </>
  );
}

/** The time that its tasks, also replaced ones, have run, as far as they are listed. */
export function taskSeconds(workload: Pick<WorkloadDetail, "tasks">, now: number = Date.now()): number {
  return workload.tasks.reduce((sum, task) => (task.started_at ? sum + Math.max(0, (task.ended_at ? Date.parse(task.ended_at) : now) - Date.parse(task.started_at)) / 1000 : sum), 0);
}

function rate(value: number): string {
  return `${readable(`${Math.round(value / 1024)}Ki`)}B/s`;
}
