/** The tasks of a workload, replaced attempts below those that count. */

import { useState } from "react";
import { Link } from "@tanstack/react-router";
import type { Task, WorkloadDetail } from "../api/types";
import { Ago, Empty, Status } from "../components/basics";
import { count } from "../lib/format";

const SHOWN = 200;

export function Tasks({ workload }: { workload: WorkloadDetail }) {
  const [all, setAll] = useState(false);
  const replaced = workload.tasks.filter((task) => !task.current).length;
  const tasks = workload.tasks.filter((task) => all || task.current);
  if (workload.tasks.length === 0) return <Empty title="This workload has no tasks." />;
  return (
    <>
      <div className="table-wrap" tabIndex={0} role="region" aria-label="Tasks">
        <table>
          <thead>
            <tr>
              <th className="number">Task</th>
              <th className="number">Attempt</th>
              <th>Status</th>
              <th>Node</th>
              <th>Started</th>
              <th>Ended</th>
              <th className="number">Restarts</th>
              <th>Exit or reason</th>
            </tr>
          </thead>
          <tbody>
            {tasks.slice(0, SHOWN).map((task) => (
              <Row key={task.id} task={task} />
            ))}
          </tbody>
        </table>
      </div>
      <p className="faint">
        {tasks.length > SHOWN && `The first ${SHOWN} of ${count(tasks.length, "task")}. `}
        {replaced > 0 && (
          <label className="check">
            <input type="checkbox" checked={all} onChange={(event) => setAll(event.target.checked)} />
            Show {count(replaced, "replaced attempt")}
          </label>
        )}
      </p>
    </>
  );
}

function Row({ task }: { task: Task }) {
  const code = task.exit_code ?? task.last_exit_code;
  const reason = task.reason ?? task.last_reason;
  return (
    <tr className={task.current ? undefined : "faint"}>
      <td className="number">{task.index}</td>
      <td className="number">{task.attempt}</td>
      <td>
        <Status value={task.status} />
      </td>
      <td>
        {task.node ? (
          <Link to="/nodes/$name" params={{ name: task.node }}>
            {task.node}
          </Link>
        ) : (
          <span className="faint">–</span>
        )}
      </td>
      <td>
        <Ago at={task.started_at} />
      </td>
      <td>
        <Ago at={task.ended_at} />
      </td>
      <td className="number">{task.restarts}</td>
      <td>{[code === null ? "" : `exit ${code}`, reason ?? ""].filter(Boolean).join(", ")}</td>
    </tr>
  );
}
