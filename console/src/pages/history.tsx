/** The history of a workload as a timeline, newest first, with the attempts that did not succeed at once. */

import { useQuery } from "@tanstack/react-query";
import { get } from "../api/client";
import type { HistoryList, WorkloadDetail } from "../api/types";
import { Ago, Empty, Loading, Panel, Problem, Status } from "../components/basics";
import { absolute, clockTime } from "../lib/format";

export function HistoryTab({ workload }: { workload: WorkloadDetail }) {
  const { data, error, refetch } = useQuery({
    queryKey: ["workload", "history", workload.id],
    queryFn: ({ signal }) => get<HistoryList>(`/api/workloads/${workload.id}/history`, { limit: 300 }, signal),
  });
  if (error) return <Problem error={error} retry={() => void refetch()} />;
  if (!data) return <Loading />;
  const rows = data.history.toReversed();
  return (
    <>
      {data.attempts.length > 0 && (
        <Panel title="Attempts that did not succeed at once">
          <ul className="timeline">
            {data.attempts.map((attempt) => (
              <li key={`${attempt.first_at} ${attempt.task_index} ${attempt.phase} ${attempt.code}`}>
                <Ago at={attempt.last_at} />
                <span>
                  {attempt.phase}
                  {attempt.task_index !== null && ` of task ${attempt.task_index}`}: {attempt.message ?? attempt.code ?? attempt.result}
                  {attempt.number > 1 && <span className="faint"> ({attempt.number} times)</span>}
                </span>
              </li>
            ))}
          </ul>
        </Panel>
      )}
      {rows.length === 0 && <Empty title="No history is kept of this workload." />}
      <ol className="timeline">
        {rows.map((row) => (
          <li key={`${row.at} ${row.object_id} ${row.new_status}`}>
            <span className="when">
              <time dateTime={row.at} title={absolute(row.at)}>{clockTime(row.at)}</time> <span className="faint"><Ago at={row.at} /></span>
            </span>
            <span className="subject">{row.noun === "task" ? `task ${row.task_index}` : row.noun}</span>
            <Status value={row.new_status} />
            <span className="faint">
              {[row.reason, row.actor].filter(Boolean).join(" · ")}
            </span>
          </li>
        ))}
      </ol>
    </>
  );
}
