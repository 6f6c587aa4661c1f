/** All workloads: filters in the URL, sorted by the server, and only the rows on screen are read and drawn. */

import { keepPreviousData, useQueries, useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useRef, useState } from "react";
import { call, get } from "../api/client";
import type { PoolList, Workload, WorkloadList } from "../api/types";
import { Empty, Loading, Problem } from "../components/basics";
import { Dialog } from "../components/dialog";
import { useMe } from "../components/layout";
import { count } from "../lib/format";
import { ROW_HEIGHT, WorkloadTable } from "./workload_table";
import { ENDED } from "../lib/statuses";
import { STATUSES, type WorkloadFilters } from "../lib/filters";

const PAGE_SIZE = 100;
const AT_ONCE = 4;
const MAX_SELECTED = 5000;
const SELECTED_AT_ONCE = 500;

export function Workloads() {
  const filters = useSearch({ from: "/app/workloads" });
  const navigate = useNavigate({ from: "/workloads" });
  const client = useQueryClient();
  const { data: me } = useMe();
  const scroller = useRef<HTMLDivElement>(null);
  const [selected, setSelected] = useState<ReadonlyMap<string, Workload>>(new Map());
  const [cancelling, setCancelling] = useState(false);
  const [selecting, setSelecting] = useState(false);
  const [cancelled, setCancelled] = useState(0);
  const [total, setTotal] = useState(0);
  const pools = useQuery({ queryKey: ["pool", "list"], queryFn: ({ signal }) => get<PoolList>("/api/pools", undefined, signal) });

  const virtual = useVirtualizer({
    count: total,
    getScrollElement: () => scroller.current,
    estimateSize: () => ROW_HEIGHT,
    overscan: 12,
  });
  const items = virtual.getVirtualItems();
  const first = Math.floor((items[0]?.index ?? 0) / PAGE_SIZE);
  const last = Math.floor((items.at(-1)?.index ?? 0) / PAGE_SIZE);
  const pages = Array.from({ length: last - first + 1 }, (_, index) => first + index);
  const answers = useQueries({
    queries: pages.map((page) => ({
      queryKey: ["workload", "list", filters, page],
      queryFn: ({ signal }: { signal: AbortSignal }) =>
        get<WorkloadList>("/api/workloads", { ...apiQuery(filters), limit: PAGE_SIZE, offset: page * PAGE_SIZE }, signal),
      placeholderData: keepPreviousData,
    })),
  });
  const rows = new Map<number, Workload>();
  answers.forEach((answer, index) => {
    answer.data?.workloads.forEach((workload, row) => rows.set((pages[index] as number) * PAGE_SIZE + row, workload));
  });
  const known = answers.find((answer) => answer.data)?.data?.total;
  useEffect(() => {
    if (known !== undefined) setTotal(known);
  }, [known]);

  const failed = answers.find((answer) => answer.error)?.error;
  const change = (part: Partial<WorkloadFilters>) => {
    setSelected(new Map());
    void navigate({ search: (before) => ({ ...before, ...part }), replace: true });
  };
  const filtered = Boolean(filters.search || filters.status?.length || filters.kind || filters.pool);

  /** Select all that match the filters, also those that are not on screen. */
  async function selectAll() {
    setSelecting(true);
    try {
      const all = new Map<string, Workload>();
      for (let offset = 0; offset < Math.min(total, MAX_SELECTED); offset += SELECTED_AT_ONCE) {
        const { workloads } = await get<WorkloadList>("/api/workloads", { ...apiQuery(filters), limit: SELECTED_AT_ONCE, offset });
        for (const workload of workloads) if (!ENDED.has(workload.status)) all.set(workload.id, workload);
        if (workloads.length < SELECTED_AT_ONCE) break;
      }
      setSelected(all);
    } finally {
      setSelecting(false);
    }
  }

  async function cancelAll() {
    const waiting = [...selected.values()];
    const problems: string[] = [];
    setCancelled(0);
    const worker = async () => {
      for (let next = waiting.pop(); next; next = waiting.pop()) {
        try {
          await call("DELETE", `/api/workloads/${next.id}`, { query: { keep: true } });
        } catch (error) {
          problems.push(`${next.name}: ${error instanceof Error ? error.message : error}`);
        }
        setCancelled((before) => before + 1);
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, worker));
    void client.invalidateQueries({ queryKey: ["workload"] });
    if (problems.length) throw new Error(`${problems.length} of ${selected.size} were not cancelled: ${problems.slice(0, 5).join("; ")}`);
    setSelected(new Map());
  }

  return (
    <div className="page fill">
      <header className="title">
        <h1>Workloads</h1>
        <span className="faint">{known === undefined ? "" : count(known, "workload")}</span>
        <div className="spacer" />
        {total > 0 && (
          <button type="button" disabled={selecting} onClick={() => (selected.size ? setSelected(new Map()) : void selectAll())}>
            {selecting ? "Selecting…" : selected.size ? "Select none" : total > MAX_SELECTED ? `Select the first ${MAX_SELECTED.toLocaleString("en")}` : "Select all"}
          </button>
        )}
        {selected.size > 0 && (
          <button type="button" className="danger" onClick={() => setCancelling(true)}>
            Cancel {count(selected.size, "workload")}
          </button>
        )}
        <Link className="button primary" to="/new">
          New workload
        </Link>
      </header>
      <div className="filters">
        <SearchBox value={filters.search ?? ""} onChange={(search) => change({ search: search || undefined })} />
        <select
          aria-label="Kind"
          value={filters.kind ?? ""}
          onChange={(event) => change({ kind: (event.target.value || undefined) as WorkloadFilters["kind"] })}
        >
          <option value="">All kinds</option>
          <option value="session">Sessions</option>
          <option value="deployment">Deployments</option>
        </select>
        <select aria-label="Pool" value={filters.pool ?? ""} onChange={(event) => change({ pool: event.target.value || undefined })}>
          <option value="">All pools</option>
          {pools.data?.pools.map((each) => (
            <option key={each.name}>{each.name}</option>
          ))}
        </select>
        <div className="chips" role="group" aria-label="Status">
          {STATUSES.map((status) => {
            const on = filters.status?.includes(status) ?? false;
            const others = (filters.status ?? []).filter((each) => each !== status);
            const next = on ? others : [...others, status];
            return (
              <button
                key={status}
                type="button"
                aria-pressed={on}
                onClick={() => change({ status: next.length ? next : undefined })}
              >
                {status.toLowerCase()}
              </button>
            );
          })}
        </div>
        <label className="check">
          <input type="checkbox" checked={filters.all ?? false} onChange={(event) => change({ all: event.target.checked || undefined })} />
          All ended
        </label>
        {me && me.role !== "user" && (
          <label className="check">
            <input
              type="checkbox"
              checked={filters.everyone ?? false}
              onChange={(event) => change({ everyone: event.target.checked || undefined })}
            />
            Everyone's
          </label>
        )}
      </div>
      {failed && <Problem error={failed} retry={() => void client.invalidateQueries({ queryKey: ["workload"] })} />}
      {known === undefined && !failed ? (
        <Loading />
      ) : known === 0 ? (
        <Empty
          title={filtered ? "No workload matches these filters." : "Nothing runs or waits here yet. Start with a command:"}
          command={filtered ? undefined : "mooring run -- echo hello"}
        />
      ) : (
        <WorkloadTable
          scroller={scroller}
          items={items}
          height={virtual.getTotalSize()}
          rows={rows}
          sort={filters.sort ?? "-created_at"}
          onSort={(sort) => change({ sort })}
          selected={selected}
          onSelect={setSelected}
          showUser={filters.everyone ?? false}
        />
      )}
      {cancelling && (
        <Dialog
          title={`Cancel ${count(selected.size, "workload")}?`}
          confirm="Cancel them"
          danger
          onConfirm={cancelAll}
          onClose={() => setCancelling(false)}
        >
          <p>Their tasks are stopped. The workloads stay on the list.</p>
          {cancelled > 0 && (
            <p role="status">
              {cancelled} of {selected.size} done
            </p>
          )}
          <ul className="names">
            {[...selected.values()].slice(0, 12).map((workload) => (
              <li key={workload.id}>{workload.name}</li>
            ))}
            {selected.size > 12 && <li className="faint">and {selected.size - 12} more</li>}
          </ul>
        </Dialog>
      )}
    </div>
  );
}

function SearchBox({ value, onChange }: { value: string; onChange: (value: string) => void }) {
  const [text, setText] = useState(value);
  const latest = useRef(onChange);
  latest.current = onChange;
  useEffect(() => setText(value), [value]);
  useEffect(() => {
    if (text === value) return;
    const timer = setTimeout(() => latest.current(text), 250);
    return () => clearTimeout(timer);
  }, [text, value]);
  return (
    <input
      type="search"
      aria-label="Filter by name"
      placeholder="Filter by name"
      value={text}
      // The characters of names; others match nothing and are refused by the server.
      onChange={(event) => setText(event.target.value.replace(/[^A-Za-z0-9._-]/g, "").replace(/^[._-]+/, ""))}
    />
  );
}

function apiQuery(filters: WorkloadFilters) {
  const { search, status, kind, pool, all, everyone, sort } = filters;
  return { search, status, kind, pool, all, everyone, sort, positions: "false" };
}
