/** The ways to a workload's tasks from a terminal: ports, shells, files. */

import type { WorkloadDetail } from "../api/types";
import { Empty } from "../components/basics";

export function AccessTab({ workload }: { workload: WorkloadDetail }) {
  if (workload.simulated) return <Empty title="Simulated tasks run nothing, so there is nothing to reach." />;
  const ports = [...new Set((workload.containers ?? []).flatMap((each) => each.ports ?? []))];
  const listed = ports.length ? ports : [8888];
  const rows: [string, string][] = [
    ...listed.map((port): [string, string] => [ports.length ? `Port ${port} of a ready task, at 127.0.0.1 of your machine` : "Any port of a ready task, such as 8888, at 127.0.0.1 of your machine", `mooring forward ${workload.name} ${port}`]),
    ["A shell in a task", `mooring exec ${workload.name} -it sh`],
    ["One command", `mooring exec ${workload.name} -- ls`],
    ["A file out of a task", `mooring cp ${workload.name}:/tmp/result .`],
    ["Its output", `mooring logs --follow ${workload.name}`],
  ];
  return (
    <ul className="recipes">
      {rows.map(([what, command]) => (
        <li key={command}>
          <span>{what}</span>
          <code>{command}</code>
          <button type="button" onClick={() => void navigator.clipboard.writeText(command)}>
            Copy
          </button>
        </li>
      ))}
    </ul>
  );
}
