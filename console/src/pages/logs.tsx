/** The output of a workload's tasks as it arrives: search, follow, download. */

import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useMemo, useRef, useState } from "react";
import { ApiError, send } from "../api/client";
import type { WorkloadDetail } from "../api/types";
import { Empty, Problem } from "../components/basics";
import { clockTime } from "../lib/format";
import { type Line, LineSplitter, MAX_LINES } from "../lib/lines";

const LINE_HEIGHT = 18;
const MAX_TASKS = 8;
const AGAIN_MILLISECONDS = 2000;
const LIVE = new Set(["PREPARING", "RUNNING", "TERMINATING"]);

export function LogsTab({ workload }: { workload: WorkloadDetail }) {
  const indexes = useMemo(() => [...new Set(workload.tasks.filter((task) => task.node).map((task) => task.index))].sort((a, b) => a - b), [workload.tasks]);
  const [task, setTask] = useState<number | "all">("all");
  const [search, setSearch] = useState("");
  const [following, setFollowing] = useState(true);
  const chosen = task === "all" ? indexes.slice(0, MAX_TASKS) : [task];
  const { lines, error } = useOutput(workload, chosen);
  const shown = useMemo(
    () => (search ? lines.filter((line) => line.text.toLowerCase().includes(search.toLowerCase())) : lines),
    [lines, search],
  );
  const scroller = useRef<HTMLDivElement>(null);
  const virtual = useVirtualizer({
    count: shown.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => LINE_HEIGHT,
    overscan: 30,
  });
  useEffect(() => {
    if (following && shown.length) virtual.scrollToIndex(shown.length - 1, { align: "end" });
  }, [following, shown.length, virtual]);

  function download() {
    const text = lines.map((line) => `${line.time || "-"} ${line.task} ${line.text}\n`).join("");
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type: "text/plain" }));
    link.download = `${workload.name}.log`;
    link.click();
    URL.revokeObjectURL(link.href);
  }

  if (indexes.length === 0) {
    return <Empty title="No task has a node yet, so there is no output." command={`mooring logs --follow ${workload.name}`} />;
  }
  return (
    <>
      <div className="filters">
        <select aria-label="Task" value={task} onChange={(event) => setTask(event.target.value === "all" ? "all" : Number(event.target.value))}>
          <option value="all">{indexes.length > MAX_TASKS ? `First ${MAX_TASKS} tasks` : "All tasks"}</option>
          {indexes.map((index) => (
            <option key={index} value={index}>
              Task {index}
            </option>
          ))}
        </select>
        <input type="search" aria-label="Search the output" placeholder="Search" value={search} onChange={(event) => setSearch(event.target.value)} />
        <label className="check">
          <input type="checkbox" checked={following} onChange={(event) => setFollowing(event.target.checked)} />
          Follow
        </label>
        <div className="spacer" />
        <span className="faint" role="status">
          {search && `${shown.length} of `}
          {lines.length} lines
        </span>
        <button type="button" onClick={download} disabled={!lines.length}>
          Download
        </button>
      </div>
      {error !== null && <Problem error={error} />}
      <div
        className="log"
        ref={scroller}
        role="log"
        aria-live="off"
        aria-label="Output"
        tabIndex={0}
        onWheel={(event) => event.deltaY < 0 && setFollowing(false)}
      >
        <div style={{ height: virtual.getTotalSize() }}>
          {virtual.getVirtualItems().map((item) => {
            const line = shown[item.index] as Line;
            return (
              <div key={line.number} className="line" style={{ transform: `translateY(${item.start}px)` }}>
                <span className="faint time">{line.time && clockTime(line.time)}</span>
                {indexes.length > 1 && <span className="faint task">{line.task}</span>}
                <span>{line.text}</span>
              </div>
            );
          })}
        </div>
      </div>
    </>
  );
}

/** Follow the output of these tasks; a connection that breaks goes on after the last line. */
function useOutput(workload: WorkloadDetail, tasks: number[]): { lines: Line[]; error: unknown } {
  const [lines, setLines] = useState<Line[]>([]);
  const [error, setError] = useState<unknown>(null);
  const key = tasks.join();
  // A new attempt of a task has an output of its own.
  const attempts = workload.tasks.filter((task) => task.current && task.node).map((task) => `${task.index}.${task.attempt}`).join();
  const live = useRef(true);
  live.current = LIVE.has(workload.status);

  // biome-ignore lint/correctness/useExhaustiveDependencies: the keys stand for the tasks and their attempts.
  useEffect(() => {
    const abort = new AbortController();
    let number = 0;
    let arrived: Line[] = [];
    let timer: ReturnType<typeof setTimeout> | undefined;
    setLines([]);
    setError(null);

    function add(parts: Omit<Line, "number">[]) {
      for (const part of parts) arrived.push({ ...part, number: number++ });
      // Many small pieces are one change of the page.
      timer ??= setTimeout(() => {
        timer = undefined;
        const added = arrived;
        arrived = [];
        setLines((before) => [...before, ...added].slice(-MAX_LINES));
      }, 100);
    }

    async function read(task: number) {
      let last = "";
      while (!abort.signal.aborted) {
        try {
          const query = { task, follow: live.current, timestamps: true, ...(last ? { since: last } : { tail: 2000 }) };
          const answer = await send("GET", `/api/workloads/${workload.id}/logs`, { query, signal: abort.signal });
          setError(null);
          const splitter = new LineSplitter(task);
          const resumed = last;
          const fresh = (parts: Omit<Line, "number">[]) => parts.filter((part) => !resumed || part.time > resumed);
          const reader = answer.body?.pipeThrough(new TextDecoderStream()).getReader();
          for (let piece = await reader?.read(); piece && !piece.done; piece = await reader?.read()) {
            const parts = fresh(splitter.push(piece.value));
            last = parts.at(-1)?.time || last;
            add(parts);
          }
          add(fresh(splitter.end()));
          if (!live.current) return;
        } catch (problem) {
          if (abort.signal.aborted) return;
          if (problem instanceof ApiError && problem.status >= 400 && problem.status < 500) {
            setError(problem);
            return;
          }
        }
        await new Promise((done) => setTimeout(done, AGAIN_MILLISECONDS));
      }
    }

    for (const task of tasks) void read(task);
    return () => {
      abort.abort();
      clearTimeout(timer);
    };
  }, [workload.id, key, attempts]);
  return { lines, error };
}
