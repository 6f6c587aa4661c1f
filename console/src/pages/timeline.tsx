/** Nodes over time: running work, planned starts, bookings, maintenance and free capacity. Dragging books. */

import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { useVirtualizer } from "@tanstack/react-virtual";
import { type PointerEvent, useEffect, useMemo, useRef, useState } from "react";
import { get, send, url } from "../api/client";
import type { TaskUseList, Timeline, TimeslotList, WorkloadList } from "../api/types";
import { Empty, Key, Loading, Problem } from "../components/basics";
import { Dialog } from "../components/dialog";
import { useMe } from "../components/layout";
import { absolute, byName, clockTime, percent } from "../lib/format";
import { byNode, HOURS, lanes, type Planned, plannedSpans, snapped, type Span, ticks, type Window } from "../lib/gantt";
import { Booking } from "./booking";
import { useNodes } from "./nodes";

const ROW = 30;
const LANES = 10;
const LANE_HEIGHT = 9;
const PLAN_LANES = 4;
const PLAN_HEIGHT = 22;
const MAX_POINTS = 40_000;
const PLANNED = 500;
const HOUR_MILLISECONDS = 3_600_000;

interface Row {
  node: string;
  pool: string;
  lanes: Span[][];
}

export function TimelinePage() {
  const { hours = 24, pool: asked, slot = "cpu" } = useSearch({ from: "/app/timeline" });
  const navigate = useNavigate({ from: "/timeline" });
  const client = useQueryClient();
  const { data: me } = useMe();
  const everyone = me !== undefined && me.role !== "user";
  const { data: list, error } = useNodes();
  const pools = useMemo(() => [...new Set((list?.nodes ?? []).map((node) => node.pool))].sort(), [list]);
  const pool = asked && pools.includes(asked) ? asked : pools[0];
  const nodes = useMemo(
    () => (list?.nodes ?? []).filter((node) => node.pool === pool).sort(byName),
    [list, pool],
  );
  const steps = Math.max(1, Math.min(96, Math.floor(MAX_POINTS / Math.max(1, nodes.length))));
  const timeline = useQuery({
    queryKey: ["timeslot", "timeline", pool, hours, steps],
    queryFn: ({ signal }) => get<Timeline>("/api/timeline", { pool, hours, steps, nodes: true }, signal),
    enabled: pool !== undefined && nodes.length > 0,
  });
  const from = timeline.data ? Date.parse(timeline.data.starts_at) : Date.now();
  const to = from + hours * HOUR_MILLISECONDS;
  const timeslots = useQuery({
    queryKey: ["timeslot", "list", pool, everyone],
    queryFn: ({ signal }) => get<TimeslotList>("/api/timeslots", { pool, everyone, status: ["REQUESTED", "CONFIRMED", "ACTIVE"], limit: 1000 }, signal),
    enabled: pool !== undefined && me !== undefined,
  });
  const tasks = useQuery({
    queryKey: ["workload", "timeline", pool],
    queryFn: ({ signal }) => get<TaskUseList>("/api/usage/tasks", { pool, sort: "name", limit: 1000 }, signal),
    enabled: pool !== undefined,
  });
  const planned = useQuery({
    queryKey: ["workload", "planned", pool, everyone],
    queryFn: ({ signal }) => get<WorkloadList>("/api/workloads", { pool, starting: true, everyone, limit: PLANNED, sort: "start", positions: "false" }, signal),
    enabled: pool !== undefined && me !== undefined,
  });
  const plans = useMemo(() => plannedSpans(planned.data?.workloads ?? [], absolute), [planned.data]);
  const rows = useMemo(
    () => rowsOf(nodes.map((node) => ({ name: node.name, pool: node.pool })), plans, tasks.data, timeslots.data),
    [nodes, plans, tasks.data, timeslots.data],
  );
  const [subscribing, setSubscribing] = useState(false);
  const [chosen, setChosen] = useState<{ window: Window; node: string } | null>(null);
  const change = (part: { hours?: number; pool?: string; slot?: string }) => void navigate({ search: (before) => ({ ...before, ...part }), replace: true });
  const zoom = (direction: 1 | -1) => {
    const index = HOURS.findIndex((each) => each >= hours) + direction;
    change({ hours: HOURS[Math.min(HOURS.length - 1, Math.max(0, index))] });
  };
  const slots = [...new Set(nodes.flatMap((node) => Object.keys(node.slots)))].sort();
  const problem = error ?? timeline.error ?? timeslots.error;

  return (
    <div className="page fill">
      <header className="title">
        <h1>Timeline</h1>
        <div className="spacer" />
        <button type="button" onClick={() => setSubscribing(true)}>
          Calendar
        </button>
      </header>
      <div className="filters">
        <label>
          Pool{" "}
          <select value={pool ?? ""} onChange={(event) => change({ pool: event.target.value })}>
            {pools.map((each) => (
              <option key={each}>{each}</option>
            ))}
          </select>
        </label>
        <label>
          Free{" "}
          <select value={slot} onChange={(event) => change({ slot: event.target.value })}>
            {slots.map((each) => (
              <option key={each}>{each}</option>
            ))}
          </select>
        </label>
        <div className="chips" role="group" aria-label="Period">
          <button type="button" aria-label="Zoom in" onClick={() => zoom(-1)} disabled={hours <= HOURS[0]}>
            +
          </button>
          {HOURS.map((each) => (
            <button key={each} type="button" aria-pressed={each === hours} onClick={() => change({ hours: each })}>
              {each < 72 ? `${each} h` : `${each / 24} d`}
            </button>
          ))}
          <button type="button" aria-label="Zoom out" onClick={() => zoom(1)} disabled={hours >= 744}>
            −
          </button>
        </div>
        <div className="spacer" />
        <span className="legend gantt-legend">
          <Key of="running" /> <Key of="planned" /> <Key of="booking" as="booked" /> <Key of="maintenance" /> <Key of="free" as={`free ${slot}`} />
        </span>
      </div>
      {problem && <Problem error={problem} />}
      {!list && !error && <Loading />}
      {list && nodes.length === 0 && <Empty title="There is no node to plan for yet. An admin makes a token for one:" command="mooring token create --name NODE" />}
      {pool && nodes.length > 0 && (
        <>
          <p className="faint">
            Drag over a row to book capacity, or{" "}
            <button type="button" className="link" onClick={() => setChosen({ window: snapped(from, from + HOUR_MILLISECONDS, hours, Date.now()), node: rows[0]?.node ?? "" })}>
              choose a window
            </button>
            .
          </p>
          <Chart
            rows={rows}
            plans={plans}
            from={from}
            to={to}
            hours={hours}
            slot={slot}
            timeline={timeline.data}
            onZoom={zoom}
            onChoose={(node, window) => setChosen({ node, window })}
            onOpen={(ref) => void navigate({ to: "/workloads/$ref", params: { ref }, search: {} })}
          />
        </>
      )}
      {subscribing && <Calendar pool={pool} onClose={() => setSubscribing(false)} />}
      {chosen && pool && (
        <Booking
          pool={pool}
          node={chosen.node}
          window={chosen.window}
          nodes={nodes}
          timeslots={timeslots.data?.timeslots ?? []}
          onDone={() => void client.invalidateQueries({ queryKey: ["timeslot"] })}
          onClose={() => setChosen(null)}
        />
      )}
    </div>
  );
}

/** The address at which calendar programs follow the bookings, and the same as a file. */
function Calendar({ pool, onClose }: { pool: string | undefined; onClose: () => void }) {
  const address = new URL(url("/api/timeslots.ics", { pool }), location.origin).href;

  async function download() {
    const answer = await send("GET", "/api/timeslots.ics", { query: { pool } });
    const link = document.createElement("a");
    link.href = URL.createObjectURL(await answer.blob());
    link.download = "mooring.ics";
    link.click();
    URL.revokeObjectURL(link.href);
  }

  return (
    <Dialog title="Follow your bookings in a calendar" confirm="Copy the link" onConfirm={() => navigator.clipboard.writeText(address)} onClose={onClose}>
      <p>Calendar programs subscribe to this iCalendar link:</p>
      <pre className="once">{address}</pre>
      <p className="faint">
        They log in with a keypair: the access key is the user, the secret key the password.{" "}
        <Link to="/admin" search={{ part: "keypairs" }}>
          Make one for the calendar
        </Link>
        .
      </p>
      <p>
        <button type="button" onClick={() => void download()}>
          Download the file
        </button>
      </p>
    </Dialog>
  );
}

function rowsOf(nodes: { name: string; pool: string }[], plans: readonly Planned[], tasks?: TaskUseList, timeslots?: TimeslotList): Row[] {
  const spans = new Map<string, Span[]>(nodes.map((node) => [node.name, []]));
  for (const task of tasks?.tasks ?? []) {
    spans.get(task.node ?? "")?.push({
      key: task.task_id,
      kind: "running",
      name: task.workload,
      from: task.started_at ? Date.parse(task.started_at) : 0,
      to: task.deadline_at ? Date.parse(task.deadline_at) : null,
      detail: `${task.workload}, task ${task.index} of ${task.user}: ${task.deadline_at ? `until ${absolute(task.deadline_at)}` : "no time limit"}`,
      workload: task.workload_id,
    });
  }
  for (const [node, planned] of byNode(plans)) spans.get(node)?.push(...planned);
  for (const slot of timeslots?.timeslots ?? []) {
    for (const { node, tasks: count } of slot.places ?? []) {
      spans.get(node)?.push({
        key: `${slot.id} ${node}`,
        kind: slot.kind as Span["kind"],
        name: slot.purpose || slot.name,
        from: Date.parse(slot.start),
        to: Date.parse(slot.end),
        detail: `${slot.kind} ${slot.name} of ${slot.user}, ${count} of ${slot.count}: ${absolute(slot.start)} to ${absolute(slot.end)}`,
      });
    }
  }
  return nodes.map((node) => ({ node: node.name, pool: node.pool, lanes: lanes(spans.get(node.name) ?? []) }));
}

interface ChartProps {
  rows: Row[];
  plans: Span[];
  from: number;
  to: number;
  hours: number;
  slot: string;
  timeline: Timeline | undefined;
  onZoom: (direction: 1 | -1) => void;
  onChoose: (node: string, window: Window) => void;
  onOpen: (workload: string) => void;
}

function Chart({ rows, plans, from, to, hours, slot, timeline, onZoom, onChoose, onOpen }: ChartProps) {
  const scroller = useRef<HTMLDivElement>(null);
  const [drag, setDrag] = useState<{ node: string; a: number; b: number } | null>(null);
  const virtual = useVirtualizer({ count: rows.length, getScrollElement: () => scroller.current, estimateSize: (index) => height(rows[index] as Row), getItemKey: (index) => (rows[index] as Row).node, overscan: 8 });
  // The sizes are known, so a row that gets more lanes is not measured: the list is laid out again.
  useEffect(() => virtual.measure(), [virtual, rows]);
  const free = useMemo(() => new Map(timeline?.outlooks.map((each) => [each.node ?? "", each.slots.find((found) => found.slot === slot)])), [timeline, slot]);
  const x = (at: number) => percent(at - from, to - from);
  const latest = useRef(onZoom);
  latest.current = onZoom;
  useEffect(() => {
    const element = scroller.current;
    const wheeled = (event: WheelEvent) => {
      if (!event.ctrlKey) return;
      event.preventDefault();
      latest.current(event.deltaY > 0 ? 1 : -1);
    };
    element?.addEventListener("wheel", wheeled, { passive: false });
    return () => element?.removeEventListener("wheel", wheeled);
  }, []);

  const instant = (event: PointerEvent<HTMLElement>) => {
    const box = event.currentTarget.getBoundingClientRect();
    return from + Math.min(1, Math.max(0, (event.clientX - box.left) / box.width)) * (to - from);
  };
  const window = drag && snapped(drag.a, drag.b, hours, Date.now());

  return (
    <div className="gantt" ref={scroller} role="region" aria-label="Nodes over time" tabIndex={0}>
      <div className="axis" aria-hidden="true">
        <span />
        <div>
          {ticks(from, hours).map((at) => (
            <span key={at} className={x(at) > 95 ? "last" : undefined} style={{ left: `${x(at)}%` }}>
              {tick(at, hours)}
            </span>
          ))}
        </div>
      </div>
      <Plans plans={plans.filter((span) => span.from < to && (span.to ?? to) > from)} x={x} to={to} onOpen={onOpen} />
      <div className="body" style={{ height: virtual.getTotalSize() }}>
        {virtual.getVirtualItems().map((item) => {
          const row = rows[item.index] as Row;
          const amounts = free.get(row.node);
          const part = 80 / Math.min(LANES, Math.max(1, row.lanes.length));
          const gap = row.lanes.length > 2 ? 1 : 4;
          return (
            <div key={row.node} className="row" style={{ transform: `translateY(${item.start}px)`, height: item.size }}>
              <Link to="/nodes/$name" params={{ name: row.node }}>
                {row.node}
              </Link>
              <div
                className="track"
                data-node={row.node}
                onPointerDown={(event) => {
                  if (event.button !== 0 || (event.target as HTMLElement).closest("button")) return;
                  event.currentTarget.setPointerCapture(event.pointerId);
                  setDrag({ node: row.node, a: instant(event), b: instant(event) });
                }}
                onPointerMove={(event) => drag?.node === row.node && setDrag({ ...drag, b: instant(event) })}
                onPointerCancel={() => setDrag(null)}
                onPointerUp={() => {
                  if (window && drag && Math.abs(drag.b - drag.a) > (to - from) / 400) onChoose(drag.node, window);
                  setDrag(null);
                }}
              >
                {amounts && <i className="free" style={{ background: shades(amounts.free, amounts.capacity) }} />}
                {row.lanes.slice(0, LANES).map((lane, index) =>
                  lane
                    .filter((span) => span.from < to && (span.to ?? to) > from)
                    .map((span) => {
                      const left = x(span.from);
                      const style = { left: `${left}%`, width: `${Math.max(0.2, x(span.to ?? to) - left)}%`, top: `${10 + index * part}%`, height: `calc(${part}% - ${gap}px)` };
                      const open = span.workload;
                      return open ? (
                        <button key={span.key} type="button" className={`span ${span.kind}${span.to === null ? " endless" : ""}`} style={style} title={span.detail} onClick={() => onOpen(open)}>
                          {row.lanes.length === 1 && span.name}
                        </button>
                      ) : (
                        <span key={span.key} className={`span ${span.kind}`} style={style} title={span.detail}>
                          {row.lanes.length === 1 && span.name}
                        </span>
                      );
                    }),
                )}
                {row.lanes.length > LANES && <small className="more">+{row.lanes.length - LANES}</small>}
                {window && drag?.node === row.node && <span className="selection" style={{ left: `${x(window.from)}%`, width: `${x(window.to) - x(window.from)}%` }} />}
              </div>
            </div>
          );
        })}
      </div>
      {window && (
        <p className="drag-hint" role="status">
          {absolute(new Date(window.from))} to {absolute(new Date(window.to))}
        </p>
      )}
    </div>
  );
}

/** The height of a row: at first its lanes get thinner, then it gets higher. */
function height(row: Row): number {
  return Math.max(ROW, 6 + Math.min(LANES, row.lanes.length) * LANE_HEIGHT);
}

/** Pending work with a planned or an estimated start, above the nodes, on which its tasks are shown if it is planned. */
function Plans({ plans, x, to, onOpen }: { plans: Span[]; x: (at: number) => number; to: number; onOpen: (workload: string) => void }) {
  const shown = lanes(plans).slice(0, PLAN_LANES);
  const more = plans.length - shown.reduce((sum, lane) => sum + lane.length, 0);
  if (!plans.length) return null;
  return (
    <div className="plans" style={{ height: shown.length * PLAN_HEIGHT + 8 }}>
      <span title="Planned work is also on the nodes of the present plan; others may be chosen when it starts">
        Planned starts{more > 0 && <small className="faint"> +{more}</small>}
      </span>
      <div className="track">
        {shown.flatMap((lane, index) =>
          lane.map((span) => {
            const left = x(span.from);
            const style = { left: `${left}%`, width: `${Math.max(0.5, x(span.to ?? to) - left)}%`, top: 4 + index * PLAN_HEIGHT, height: PLAN_HEIGHT - 3 };
            return (
              <button key={span.key} type="button" className={`span planned${span.to === null ? " endless" : ""}`} style={style} title={span.detail} onClick={() => onOpen(span.workload as string)}>
                {span.name}
              </button>
            );
          }),
        )}
      </div>
    </div>
  );
}

function tick(at: number, hours: number): string {
  const day = new Date(at).toLocaleDateString("en-GB", { weekday: "short", day: "numeric", month: "short" });
  return hours > 72 || new Date(at).getHours() === 0 ? day : clockTime(new Date(at)).slice(0, 5);
}

/** Free capacity as stripes of one gradient: one element per row, however many steps. */
function shades(free: number[], capacity: number): string {
  const size = 100 / Math.max(1, free.length);
  const stops = free.map((amount, index) => {
    const share = Math.round(percent(amount, capacity) * 0.3);
    const colour = `color-mix(in srgb, var(--heat-2) ${share}%, transparent)`;
    return `${colour} ${(index * size).toFixed(2)}% ${((index + 1) * size).toFixed(2)}%`;
  });
  return `linear-gradient(90deg, ${stops.join(", ")})`;
}
