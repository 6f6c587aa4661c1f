/** The rows of the list of workloads that are on screen. */

import { createColumnHelper, tableFeatures, useTable } from "@tanstack/react-table";
import type { VirtualItem } from "@tanstack/react-virtual";
import { Link } from "@tanstack/react-router";
import { type RefObject, useMemo } from "react";
import type { Workload } from "../api/types";
import { Ago, Status } from "../components/basics";
import { readable } from "../lib/format";
import { sentence } from "../lib/sentence";

export const ROW_HEIGHT = 40;
const features = tableFeatures({});
const helper = createColumnHelper<typeof features, Workload>();

const COLUMNS = helper.columns([
  helper.accessor("name", {
    header: "Name",
    cell: ({ row }) => (
      <Link to="/workloads/$ref" params={{ ref: row.original.id }} className="name">
        {row.original.name}
      </Link>
    ),
  }),
  helper.accessor("status", { header: "Status", cell: ({ getValue }) => <Status value={getValue()} /> }),
  helper.display({ id: "why", header: "Why", cell: ({ row }) => <Why workload={row.original} /> }),
  helper.accessor("kind", { header: "Kind", cell: ({ row }) => `${row.original.kind}` }),
  helper.accessor("pool", { header: "Pool" }),
  helper.display({ id: "requests", header: "Requests", cell: ({ row }) => requests(row.original) }),
  helper.accessor("user", { header: "User" }),
  helper.accessor("priority", { header: "Priority" }),
  helper.accessor("created_at", { header: "Created", cell: ({ getValue }) => <Ago at={getValue()} /> }),
]);
const SORTABLE = new Set(["name", "status", "priority", "created_at"]);

interface Props {
  scroller: RefObject<HTMLDivElement | null>;
  items: VirtualItem[];
  height: number;
  rows: ReadonlyMap<number, Workload>;
  sort: string;
  onSort: (sort: string) => void;
  selected: ReadonlyMap<string, Workload>;
  onSelect: (selected: ReadonlyMap<string, Workload>) => void;
  showUser: boolean;
}

export function WorkloadTable({ scroller, items, height, rows, sort, onSort, selected, onSelect, showUser }: Props) {
  const columns = useMemo(() => (showUser ? COLUMNS : COLUMNS.filter((column) => column.id !== "user" && !("accessorKey" in column && column.accessorKey === "user"))), [showUser]);
  const shown = items.map((item) => rows.get(item.index)).filter((each) => each !== undefined);
  const data = useStable(shown);
  const table = useTable({ features, columns, data, getRowId: (workload) => workload.id });
  const byId = new Map(table.getRowModel().rows.map((row) => [row.id, row]));

  function toggle(workload: Workload) {
    const next = new Map(selected);
    if (!next.delete(workload.id)) next.set(workload.id, workload);
    onSelect(next);
  }

  return (
    <div className="table-scroll" ref={scroller} tabIndex={0} role="region" aria-label="Workloads">
      <div className={showUser ? "grid-table with-user" : "grid-table"} role="table" aria-rowcount={-1}>
        {table.getHeaderGroups().map((group) => (
          <div key={group.id} className="row head" role="row">
            <span role="columnheader">
              <span className="hidden">Select</span>
            </span>
            {group.headers.map((header) => {
              const id = header.column.id;
              const order = sort === id ? "ascending" : sort === `-${id}` ? "descending" : undefined;
              return (
                <span key={header.id} role="columnheader" className={`c-${id}`} aria-sort={order}>
                  {SORTABLE.has(id) ? (
                    <button type="button" onClick={() => onSort(order === "ascending" ? `-${id}` : id)}>
                      <table.FlexRender header={header} />
                      <span aria-hidden="true">{order === "ascending" ? " ↑" : order ? " ↓" : ""}</span>
                    </button>
                  ) : (
                    <table.FlexRender header={header} />
                  )}
                </span>
              );
            })}
          </div>
        ))}
        <div role="rowgroup" className="body" style={{ height }}>
          {items.map((item) => {
            const workload = rows.get(item.index);
            const row = workload && byId.get(workload.id);
            return (
              <div
                key={item.key}
                className="row"
                role="row"
                aria-rowindex={item.index + 2}
                style={{ transform: `translateY(${item.start}px)` }}
              >
                {row && workload ? (
                  <>
                    <span role="cell">
                      <input
                        type="checkbox"
                        aria-label={`Select ${workload.name}`}
                        checked={selected.has(workload.id)}
                        onChange={() => toggle(workload)}
                      />
                    </span>
                    {row.getAllCells().map((cell) => (
                      <span key={cell.id} role="cell" className={`c-${cell.column.id}`}>
                        <table.FlexRender cell={cell} />
                      </span>
                    ))}
                  </>
                ) : (
                  <span role="cell" className="skeleton" />
                )}
              </div>
            );
          })}
        </div>
      </div>
    </div>
  );
}

/** The same array while its elements are the same, since the table builds its rows again for another one. */
function useStable(values: Workload[]): Workload[] {
  const key = values.map((each) => `${each.id} ${each.version}`).join();
  // biome-ignore lint/correctness/useExhaustiveDependencies: the key stands for the values.
  return useMemo(() => values, [key]);
}

function Why({ workload }: { workload: Workload }) {
  const text = workload.status === "RUNNING" && workload.health === "healthy" ? "" : sentence(workload);
  return (
    <span className="faint clip" title={text}>
      {text}
    </span>
  );
}

function requests(workload: Workload): string {
  const parts = Object.entries(workload.resources).map(([slot, amount]) =>
    slot === "cpu" ? `${amount} cpu` : slot === "memory" ? readable(amount) : `${amount} ${slot}`,
  );
  return `${workload.replicas > 1 ? `${workload.replicas} × ` : ""}${parts.join(" · ")}`;
}
