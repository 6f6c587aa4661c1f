/** A shell in a running task: xterm.js over the exec channel. */

import { FitAddon } from "@xterm/addon-fit";
import { type ITheme, Terminal } from "@xterm/xterm";
import "@xterm/xterm/css/xterm.css";
import { useEffect, useRef, useState } from "react";
import { openChannel } from "../api/channel";
import type { WorkloadDetail } from "../api/types";
import { Empty } from "../components/basics";

// The shell that there is depends on the node or the image.
const SHELL = ["sh", "-c", 'for shell in bash sh; do command -v "$shell" >/dev/null 2>&1 && exec "$shell"; done; exit 127'];
const THEME: ITheme = { background: "#101418", foreground: "#d9e0e6", cursor: "#6cc3cf", selectionBackground: "#2d4a55" };

export default function Shell({ workload }: { workload: WorkloadDetail }) {
  const running = workload.tasks.filter((task) => task.current && task.status === "RUNNING");
  const [chosen, setChosen] = useState<string | null>(null);
  const [session, setSession] = useState(0);
  const [ended, setEnded] = useState("");
  const task = running.find((each) => each.id === chosen) ?? running[0];
  if (workload.simulated) return <Empty title="Simulated tasks run nothing, so there is no shell in them." />;
  if (!task) return <Empty title="A shell opens in a running task, and none runs." command={`mooring exec ${workload.name} -it sh`} />;
  return (
    <>
      <div className="filters">
        {running.length > 1 && (
          <select aria-label="Task" value={task.id} onChange={(event) => setChosen(event.target.value)}>
            {running.map((each) => (
              <option key={each.id} value={each.id}>
                Task {each.index} on {each.node}
              </option>
            ))}
          </select>
        )}
        <span className="faint">
          Task {task.index} on {task.node}
        </span>
        <div className="spacer" />
        {ended && (
          <>
            <span role="status">{ended}</span>
            <button
              type="button"
              onClick={() => {
                setEnded("");
                setSession(session + 1);
              }}
            >
              Open another shell
            </button>
          </>
        )}
      </div>
      <Screen key={`${task.id} ${session}`} taskId={task.id} onEnd={setEnded} />
    </>
  );
}

function Screen({ taskId, onEnd }: { taskId: string; onEnd: (text: string) => void }) {
  const frame = useRef<HTMLDivElement>(null);
  const latest = useRef(onEnd);
  latest.current = onEnd;
  useEffect(() => {
    if (!frame.current) return;
    const terminal = new Terminal({ theme: THEME, fontSize: 13, cursorBlink: false, fontFamily: "ui-monospace, monospace", scrollback: 5000 });
    const fit = new FitAddon();
    terminal.loadAddon(fit);
    terminal.open(frame.current);
    fit.fit();
    const text = new TextEncoder();
    const channel = openChannel(
      `/api/tasks/${taskId}/exec`,
      { command: SHELL, terminal: true, rows: terminal.rows, columns: terminal.cols },
      {
        onData: (data, done) => terminal.write(data, done),
        onEnd: ({ exit_code, message }) =>
          latest.current(message || (exit_code === undefined ? "The shell has ended." : `The shell has ended with exit code ${exit_code}.`)),
      },
    );
    terminal.onData((typed) => channel.write(text.encode(typed)));
    terminal.onResize(({ rows, cols }) => channel.resize(rows, cols));
    const observer = new ResizeObserver(() => fit.fit());
    observer.observe(frame.current);
    terminal.focus();
    return () => {
      observer.disconnect();
      channel.close();
      terminal.dispose();
    };
  }, [taskId]);
  return <div className="shell" ref={frame} />;
}
