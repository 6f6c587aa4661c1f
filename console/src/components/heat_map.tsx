/** A heat map of nodes on a canvas. The list below it has the same nodes for the keyboard and for screen readers. */

import { useEffect, useMemo, useRef, useState, useSyncExternalStore } from "react";
import type { Node } from "../api/types";
import { count, readable } from "../lib/format";
import { type Cell, cellAt, type Figure, layOut, measured } from "../lib/heat";
import { subscribeTheme, theme } from "./theme";

interface Props {
  nodes: Node[];
  slot: string;
  by: string;
  figure: Figure;
  onOpen: (name: string) => void;
}

export function HeatMap({ nodes, slot, by, figure, onOpen }: Props) {
  const frame = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const [width, setWidth] = useState(0);
  const [over, setOver] = useState<Cell | null>(null);
  const colours = useSyncExternalStore(subscribeTheme, theme);
  const layout = useMemo(() => layOut(nodes, slot, by, width, figure), [nodes, slot, by, width, figure]);

  useEffect(() => {
    if (!frame.current) return;
    const observer = new ResizeObserver(([entry]) => setWidth(Math.floor(entry?.contentRect.width ?? 0)));
    observer.observe(frame.current);
    return () => observer.disconnect();
  }, []);

  useEffect(() => {
    const context = canvas.current?.getContext("2d");
    if (!canvas.current || !context || !width) return;
    const scale = devicePixelRatio;
    canvas.current.width = width * scale;
    canvas.current.height = layout.height * scale;
    context.scale(scale, scale);
    const style = getComputedStyle(document.documentElement);
    const of = (name: string) => style.getPropertyValue(name).trim();
    const [text, off, ramp] = [of("--faint"), of("--heat-off"), [0, 1, 2, 3, 4, 5].map((step) => of(`--heat-${step}`))];
    context.font = "12px system-ui, sans-serif";
    context.textBaseline = "middle";
    context.fillStyle = text;
    for (const group of layout.groups) context.fillText(`${group.name}  ${group.nodes}`, 0, group.y + 12);
    for (const cell of layout.cells) {
      context.fillStyle = (cell.level === null ? off : ramp[Math.ceil(cell.level * 5)]) as string;
      context.fillRect(cell.x, cell.y, layout.side, layout.side);
    }
  }, [layout, width, colours]);

  const at = (event: { clientX: number; clientY: number }) => {
    const box = canvas.current?.getBoundingClientRect();
    return box && cellAt(layout, event.clientX - box.left, event.clientY - box.top);
  };
  const found = over?.node.slots[slot];
  const load = over && measured(over.node, slot);
  return (
    <div className="heat" ref={frame}>
      <canvas
        ref={canvas}
        role="img"
        aria-label={`${figure[0]?.toUpperCase()}${figure.slice(1)} ${slot} of ${nodes.length} nodes by ${by}; the table below has the numbers`}
        style={{ width, height: layout.height, cursor: over ? "pointer" : undefined }}
        onMouseMove={(event) => setOver(at(event) ?? null)}
        onMouseLeave={() => setOver(null)}
        onClick={(event) => {
          const cell = at(event);
          if (cell) onOpen(cell.node.name);
        }}
      />
      {over && (
        <div className="tip" style={{ left: Math.min(over.x, Math.max(0, width - 220)), top: over.y + layout.side + 6 }}>
          <strong>{over.node.name}</strong>
          <br />
          {over.node.status.toLowerCase()}
          {!over.node.schedulable && ", takes no work"}
          <br />
          {found ? `${readable(found.free)} of ${readable(found.allocatable)} ${slot} free` : `no ${slot}`}
          {load !== null && (
            <>
              <br />
              {(load * 100).toFixed(0)} % of {slot} measured
            </>
          )}
          <br />
          {count(over.node.tasks, "task")}
        </div>
      )}
    </div>
  );
}
