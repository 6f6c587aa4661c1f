/** A line over time, drawn as SVG. */

import { clockTime } from "../lib/format";

const WIDTH = 560;
const HEIGHT = 120;

interface Props {
  label: string;
  points: readonly { at: number; value: number }[];
  show: (value: number) => string;
  /** The requested amount, as a dashed line. */
  limit?: number;
}

export function Chart({ label, points, show, limit }: Props) {
  const first = points[0];
  const last = points.at(-1);
  if (!first || !last) return null;
  const most = Math.max(limit ?? 0, ...points.map((point) => point.value)) * 1.1 || 1;
  const x = (at: number) => ((at - first.at) / Math.max(1, last.at - first.at)) * WIDTH;
  const y = (value: number) => HEIGHT - (value / most) * HEIGHT;
  const line = points.map((point) => `${x(point.at).toFixed(1)},${y(point.value).toFixed(1)}`).join(" ");
  const text = `${label}: ${show(last.value)} now, at most ${show(Math.max(...points.map((point) => point.value)))}`;
  return (
    <figure className="chart">
      <figcaption>
        <strong>{label}</strong>
        <span className="faint">
          {show(last.value)} now{limit ? ` of ${show(limit)} requested` : ""}
        </span>
      </figcaption>
      <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label={text}>
        {limit && <line x1={0} x2={WIDTH} y1={y(limit)} y2={y(limit)} className="limit" />}
        <polygon points={`0,${HEIGHT} ${line} ${WIDTH},${HEIGHT}`} />
        <polyline points={line} />
      </svg>
      <div className="faint span-of">
        <span>{clockTime(new Date(first.at)).slice(0, 5)}</span>
        <span>{clockTime(new Date(last.at)).slice(0, 5)}</span>
      </div>
    </figure>
  );
}
