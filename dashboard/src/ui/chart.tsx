/** A line chart: a few series over time, with a readout under the pointer. */

import { useRef, useState } from "react";
import { clock } from "../core/format";
import { ticks } from "../core/scale";

export interface Series {
  name: string;
  points: [number, number][];
}

const W = 560;
const H = 168;
const LEFT = 56;
const BOTTOM = 22;
const TOP = 8;

export function Chart({ series, format, axis = format, label }: { series: Series[]; format: (y: number) => string; axis?: (y: number) => string; label: string }) {
  const box = useRef<SVGSVGElement>(null);
  const [at, setAt] = useState<number | null>(null);
  const all = series.flatMap((s) => s.points);
  if (all.length < 2) return <p className="empty">Two batches make a line; there are not as many yet.</p>;
  const x0 = Math.min(...all.map((p) => p[0]));
  const x1 = Math.max(...all.map((p) => p[0]), x0 + 1);
  const marks = ticks(Math.max(...all.map((p) => p[1])));
  const top = marks[marks.length - 1] || 1;
  const px = (x: number): number => LEFT + ((x - x0) / (x1 - x0)) * (W - LEFT - 8);
  const py = (y: number): number => TOP + (1 - y / top) * (H - TOP - BOTTOM);
  const near = at === null ? null : series.map((s) => nearest(s.points, at));
  return (
    <figure className="chart">
      <svg
        ref={box}
        viewBox={`0 0 ${W} ${H}`}
        role="img"
        aria-label={label}
        onPointerMove={(event) => {
          const rect = box.current!.getBoundingClientRect();
          const x = ((event.clientX - rect.left) / rect.width) * W;
          setAt(x0 + ((x - LEFT) / (W - LEFT - 8)) * (x1 - x0));
        }}
        onPointerLeave={() => setAt(null)}
      >
        {marks.map((m) => (
          <g key={m}>
            <line className="grid" x1={LEFT} x2={W - 8} y1={py(m)} y2={py(m)} />
            <text className="axis" x={LEFT - 8} y={py(m) + 4} textAnchor="end">
              {axis(m)}
            </text>
          </g>
        ))}
        <text className="axis" x={LEFT} y={H - 4}>
          {clock(x0)}
        </text>
        <text className="axis" x={W - 8} y={H - 4} textAnchor="end">
          {clock(x1)}
        </text>
        {series.map((s, i) => (
          <g key={s.name} className={`series-${i % 4}`}>
            <polyline points={s.points.map(([x, y]) => `${px(x).toFixed(1)},${py(y).toFixed(1)}`).join(" ")} />
            {near?.[i] && <circle cx={px(near[i][0])} cy={py(near[i][1])} r="3.5" />}
          </g>
        ))}
      </svg>
      <figcaption>
        {series.map((s, i) => {
          const point = near ? near[i] : s.points[s.points.length - 1];
          return (
            <span key={s.name} className={`key-${i % 4}`}>
              <i /> {s.name} {point && <b>{format(point[1])}</b>}
              {near && point && <span className="muted"> at {clock(point[0])}</span>}
            </span>
          );
        })}
      </figcaption>
    </figure>
  );
}

function nearest(points: [number, number][], x: number): [number, number] | undefined {
  let best: [number, number] | undefined;
  for (const p of points) if (!best || Math.abs(p[0] - x) < Math.abs(best[0] - x)) best = p;
  return best;
}
