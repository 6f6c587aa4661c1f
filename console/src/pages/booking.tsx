/** A booking of capacity, or of a node for maintenance: what conflicts with it is shown before it is requested. */

import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { call, get } from "../api/client";
import type { Node, Timeline, Timeslot } from "../api/types";
import { Dialog } from "../components/dialog";
import { useMe } from "../components/layout";
import { absolute, amount, count } from "../lib/format";
import { fit, inBaseUnits, type Window } from "../lib/gantt";

interface Props {
  pool: string;
  node: string;
  window: Window;
  nodes: Node[];
  timeslots: Timeslot[];
  onDone: () => void;
  onClose: () => void;
}

export function Booking({ pool, node, window: first, nodes, timeslots, onDone, onClose }: Props) {
  const { data: me } = useMe();
  const [maintenance, setMaintenance] = useState(false);
  const [window, setWindow] = useState(first);
  const [tasks, setTasks] = useState(1);
  const [resources, setResources] = useState<Record<string, string>>({ cpu: "1" });
  const [purpose, setPurpose] = useState("");
  const hours = Math.min(744, Math.max(1, Math.ceil((window.to - Date.now()) / 3_600_000)));
  const { data: timeline } = useQuery({
    queryKey: ["timeslot", "fit", pool, hours],
    queryFn: ({ signal }) => get<Timeline>("/api/timeline", { pool, hours, steps: Math.max(1, Math.min(400, hours * 4, Math.floor(40_000 / nodes.length))), nodes: true }, signal),
  });
  const slots = [...new Set(["cpu", "memory", ...nodes.flatMap((each) => Object.keys(each.slots))])];
  const wanted = Object.entries(resources).filter(([, value]) => amount(value) > 0);
  const requests = Object.fromEntries(wanted.map(([slot, value]) => [slot, inBaseUnits(slot, amount(value), nodes, timeline)]));
  const found = timeline && fit(timeline, timeslots, pool, requests, window);
  const short = found && !maintenance && found.tasks < tasks;

  async function submit() {
    const start = new Date(window.from).toISOString();
    const end = new Date(window.to).toISOString();
    if (maintenance) {
      await call("POST", "/api/maintenance", { body: { nodes: [node], start, end, reason: purpose } });
    } else {
      const body = { pool, start, end, count: tasks, resources: Object.fromEntries(wanted), ...(purpose && { purpose }) };
      const accepted = await call<{ ids: string[] }>("POST", "/api/timeslots", { body });
      const decided = await get<Timeslot>(`/api/timeslots/${accepted.ids[0]}/wait`, { timeout: 20 });
      onDone();
      if (decided.status === "REFUSED") throw new Error(`The booking was refused: ${decided.reason?.message ?? "there is no reason on record"}`);
    }
    onDone();
  }

  return (
    <Dialog title={maintenance ? `Maintenance of ${node}` : `Book capacity of ${pool}`} confirm={maintenance ? "Reserve it" : "Book it"} onConfirm={submit} onClose={onClose}>
      {me?.role === "admin" && (
        <label className="check">
          <input type="checkbox" checked={maintenance} onChange={(event) => setMaintenance(event.target.checked)} />
          Maintenance of node {node} instead
        </label>
      )}
      <div className="fields">
        <Moment label="Start" value={window.from} onChange={(from) => setWindow({ ...window, from })} />
        <Moment label="End" value={window.to} onChange={(to) => setWindow({ ...window, to })} />
        {!maintenance && (
          <>
            <label>
              <span>Tasks</span>
              <input type="number" min={1} value={tasks} onChange={(event) => setTasks(Math.max(1, event.target.valueAsNumber || 1))} />
            </label>
            {slots.map((slot) => (
              <label key={slot}>
                <span>{slot} of each</span>
                <input value={resources[slot] ?? ""} placeholder="none" onChange={(event) => setResources({ ...resources, [slot]: event.target.value })} />
              </label>
            ))}
          </>
        )}
        <label className="wide">
          <span>{maintenance ? "Reason" : "Purpose"}</span>
          <input value={purpose} maxLength={500} required={maintenance} onChange={(event) => setPurpose(event.target.value)} />
        </label>
      </div>
      <div role="status" className={short ? "conflict" : "faint"}>
        {!timeline && "Looks for free capacity…"}
        {found && !maintenance && (short ? `Conflict: only ${found.tasks} of ${count(tasks, "task")} fit throughout this window.` : `${found.tasks} such tasks fit throughout this window.`)}
        {maintenance && "Bookings on this node are moved elsewhere; work that would overlap does not start."}
      </div>
      {found && found.conflicts.length > 0 && (short || maintenance) && (
        <ul className="names" aria-label="Conflicts">
          {found.conflicts.slice(0, 8).map((each) => (
            <li key={each.id}>
              {each.kind} <strong>{each.name}</strong> of {each.user}{" "}
              <span className="faint">
                {absolute(each.start)} to {absolute(each.end)}
              </span>
            </li>
          ))}
        </ul>
      )}
    </Dialog>
  );
}

function Moment({ label, value, onChange }: { label: string; value: number; onChange: (value: number) => void }) {
  const offset = new Date(value).getTimezoneOffset() * 60_000;
  return (
    <label>
      <span>{label}</span>
      <input type="datetime-local" value={new Date(value - offset).toISOString().slice(0, 16)} onChange={(event) => event.target.value && onChange(new Date(event.target.value).getTime())} />
    </label>
  );
}
