/** The command palette: pages, actions and workloads by name, all by keyboard. */

import { useQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { type KeyboardEvent, useEffect, useRef, useState } from "react";
import { get } from "../api/client";
import type { WorkloadList } from "../api/types";
import { PAGES } from "./pages";
import { toggleTheme } from "./theme";

interface Command {
  name: string;
  hint: string;
  run: () => void;
}

export function Palette({ onClose, onLogout }: { onClose: () => void; onLogout: () => void }) {
  const navigate = useNavigate();
  const dialog = useRef<HTMLDialogElement>(null);
  const [text, setText] = useState("");
  const [chosen, setChosen] = useState(0);
  const wanted = text.trim();
  const { data } = useQuery({
    queryKey: ["workload", "palette", wanted],
    queryFn: ({ signal }) => get<WorkloadList>("/api/workloads", { search: wanted, limit: 8, all: true }, signal),
    enabled: /^[A-Za-z0-9][A-Za-z0-9._-]*$/.test(wanted),
  });
  useEffect(() => dialog.current?.showModal(), []);

  const fixed: Command[] = [
    ...PAGES.map((page) => ({
      name: page.name,
      hint: `g ${page.key}`,
      run: () => void navigate({ to: page.path }),
    })),
    { name: "Change between light and dark", hint: "t", run: toggleTheme },
    { name: "API documentation", hint: "/docs", run: () => location.assign("/docs") },
    { name: "Log out", hint: "", run: onLogout },
  ];
  const commands = fixed.filter((each) => each.name.toLowerCase().includes(wanted.toLowerCase()));
  for (const workload of data?.workloads ?? []) {
    commands.push({
      name: workload.name,
      hint: workload.status.toLowerCase(),
      run: () => void navigate({ to: "/workloads/$ref", params: { ref: workload.id } }),
    });
  }
  const index = Math.min(chosen, commands.length - 1);

  function keyed(event: KeyboardEvent) {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      const step = event.key === "ArrowDown" ? 1 : -1;
      setChosen((index + step + commands.length) % Math.max(1, commands.length));
    } else if (event.key === "Enter") {
      event.preventDefault();
      run(commands[index]);
    }
  }

  function run(command: Command | undefined) {
    if (!command) return;
    onClose();
    command.run();
  }

  return (
    <dialog ref={dialog} className="palette" onClose={onClose} aria-label="Commands">
      <input
        type="text"
        role="combobox"
        aria-expanded="true"
        aria-controls="palette-list"
        aria-activedescendant={`palette-${index}`}
        aria-label="Search for a page, an action or a workload"
        placeholder="Page, action or workload…"
        value={text}
        onChange={(event) => {
          setText(event.target.value);
          setChosen(0);
        }}
        onKeyDown={keyed}
      />
      <div id="palette-list" role="listbox" aria-label="Commands">
        {commands.map((command, position) => (
          <div
            key={`${command.name} ${command.hint}`}
            id={`palette-${position}`}
            role="option"
            tabIndex={-1}
            aria-selected={position === index}
            onMouseEnter={() => setChosen(position)}
            onClick={() => run(command)}
            onKeyDown={keyed}
          >
            <span>{command.name}</span>
            <span className="faint">{command.hint}</span>
          </div>
        ))}
        {commands.length === 0 && <div className="none">Nothing matches</div>}
      </div>
    </dialog>
  );
}
