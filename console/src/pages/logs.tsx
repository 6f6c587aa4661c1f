/** The output of a workload's tasks as it arrives: search, follow, download. */

import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useMemo, useRef, useState } from "react";
import { ApiError, send } from "../api/client";
import type { WorkloadDetail } from "../api/types";
import { Empty, Problem } from "../components/basics";
import { absolute, clockTime } from "../lib/format";
import { type Line, LineSplitter, MAX_LINES, Resumption } from "../lib/lines";

const LINE_HEIGHT = 18;
const MAX_TASKS = 100;
const AT_ONCE = 2;
const FIRST_LINES = 4000;
const AGAIN_MILLISECONDS = 2000;
const LIVE = new Set(["PREPARING", "RUNNING", "TERMINATING"]);

export function LogsTab({ workload }: { workload: WorkloadDetail }) {
  const indexes = useMemo(() => [...new Set(workload.tasks.filter((task) => task.node).map((task) => task.index))].sort((a, b) => a - b), [workload.tasks]);
  const [task, setTask] = useState<number | "all">("all");
  const [search, setSearch] = useState("");
  const [following, setFollowing] = useState(true);
  const chosen = task === "all" ? indexes.slice(0, MAX_TASKS) : [task];
  const containers = (workload.containers ?? []).map((each) => each.name);
  const [container, setContainer] = useState<string>();
  const { lines, error } = useOutput(workload, chosen, container);
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
        {containers.length > 1 && (
          <select aria-label="Container" value={container ?? ""} onChange={(event) => setContainer(event.target.value || undefined)}>
            <option value="">First container</option>
            {containers.map((each) => (
              <option key={each}>{each}</option>
            ))}
          </select>
        )}
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
                {line.time && (
                  <time className="faint time" dateTime={line.time} title={absolute(line.time)}>
                    {clockTime(line.time)}
                  </time>
                )}
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

/** Resolve once the page is looked at. */
function visible(signal: AbortSignal): Promise<void> {
  return new Promise((done) => {
    const check = () => {
      if (document.hidden && !signal.aborted) return;
      document.removeEventListener("visibilitychange", check);
      signal.removeEventListener("abort", check);
      done();
    };
    document.addEventListener("visibilitychange", check);
    signal.addEventListener("abort", check);
    check();
  });
}

/**
 * The output of these tasks as it arrives; a connection that breaks goes on after the last line.
 *
 * That of one task is a stream. A browser has few connections, so that of several is asked for again and again, and a
 * page that nobody looks at reads nothing.
 */
function useOutput(workload: WorkloadDetail, tasks: number[], container: string | undefined): { lines: Line[]; error: unknown } {
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

    /** Read what there is, or follow it; return whether to read again. */
    async function read(task: number, known: Resumption, follow: boolean): Promise<boolean> {
      const stop = new AbortController();
      const leave = () => (document.hidden || abort.signal.aborted) && stop.abort();
      document.addEventListener("visibilitychange", leave);
      abort.signal.addEventListener("abort", leave);
      try {
        const first = Math.ceil(FIRST_LINES / tasks.length);
        const query = { task, container, follow, timestamps: true, ...(known.since ? { since: known.since } : { tail: first }) };
        known.begin();
        const answer = await send("GET", `/api/workloads/${workload.id}/logs`, { query, signal: stop.signal });
        setError(null);
        const splitter = new LineSplitter(task);
        const reader = answer.body?.pipeThrough(new TextDecoderStream()).getReader();
        for (let piece = await reader?.read(); piece && !piece.done; piece = await reader?.read()) add(known.fresh(splitter.push(piece.value)));
        add(known.fresh(splitter.end()));
      } catch (problem) {
        if (abort.signal.aborted) return false;
        if (problem instanceof ApiError && problem.status >= 400 && problem.status < 500) {
          setError(problem);
          return false;
        }
        return true;
      } finally {
        document.removeEventListener("visibilitychange", leave);
        abort.signal.removeEventListener("abort", leave);
      }
      return live.current;
    }

    async function run() {
      let open = tasks.map((task) => ({ task, known: new Resumption() }));
      while (open.length && !abort.signal.aborted) {
        await visible(abort.signal);
        const queue = [...open];
        const again: typeof open = [];
        const worker = async () => {
          for (let next = queue.shift(); next && !abort.signal.aborted; next = queue.shift()) {
            if (await read(next.task, next.known, live.current && tasks.length === 1)) again.push(next);
          }
        };
        await Promise.all(Array.from({ length: AT_ONCE }, worker));
        open = again.sort((a, b) => a.task - b.task);
        if (open.length) await new Promise((done) => setTimeout(done, AGAIN_MILLISECONDS));
      }
    }

    void run();
    return () => {
      abort.abort();
      clearTimeout(timer);
    };
  }, [workload.id, key, attempts, container]);
  return { lines, error };
}
