/** The graph of a job, drawn. */

import { curve, layOut, SIZES } from "../core/dag";
import { count, duration } from "../core/format";
import { tone } from "../core/states";
import { Icon } from "./icons";

export interface GraphNode {
  name: string;
  kind: string;
  inputs: string[];
  status?: string;
  rows?: number;
  /** The rows are what it read: nobody counts what a stream writes. */
  reads?: boolean;
  rate?: number;
  batchMs?: number;
  share?: number;
  slowest?: boolean;
}

const PAD = 12;

export function Graph({ nodes, chosen, onChoose }: { nodes: GraphNode[]; chosen?: string; onChoose?: (name: string) => void }) {
  const layout = layOut(nodes);
  const byName = new Map(nodes.map((n) => [n.name, n]));
  const width = layout.width + 2 * PAD;
  const height = layout.height + 2 * PAD;
  return (
    <div className="graph" tabIndex={0} role="group" aria-label="Graph of the job">
      {/* Shrinks to fit, to where it can still be read; then it scrolls. */}
      <svg style={{ width, minWidth: width * 0.66 }} viewBox={`${-PAD} ${-PAD} ${width} ${height}`}>
        {layout.edges.map((e) => {
          const live = byName.get(e.to)?.status === "RUNNING";
          return <path key={`${e.from}\0${e.to}`} className={live ? "edge live" : "edge"} d={curve(e.points)} />;
        })}
        {layout.nodes.map(({ name, x, y }) => (
          <GraphBox key={name} node={byName.get(name)!} x={x} y={y} chosen={chosen === name} onChoose={onChoose} />
        ))}
      </svg>
    </div>
  );
}

function GraphBox(props: { node: GraphNode; x: number; y: number; chosen: boolean; onChoose: ((name: string) => void) | undefined }) {
  const { node, x, y, onChoose } = props;
  const choose = onChoose && (() => onChoose(node.name));
  const facts = [
    node.rows !== undefined ? `${count(node.rows)} rows${node.reads ? " in" : ""}` : "",
    node.rate !== undefined ? `${count(node.rate)}/s` : "",
    node.batchMs !== undefined ? duration(node.batchMs) : "",
  ].filter(Boolean);
  return (
    <foreignObject x={x} y={y} width={SIZES.width} height={SIZES.height}>
      <button
        type="button"
        className={`vertex ${node.status ? `tone-${tone(node.status)}` : ""} ${props.chosen ? "chosen" : ""}`}
        onClick={choose}
        disabled={!choose}
        aria-pressed={props.chosen}
      >
        <span className="vertex-top">
          <Icon name={node.kind} size={15} />
          <span className="vertex-kind">{node.kind}</span>
          {node.slowest && <span className="slowest" title="Its last batch took the longest">slowest</span>}
          {node.status && <span className="dot" title={node.status.toLowerCase()} />}
        </span>
        <span className="vertex-name">{node.name}</span>
        <span className="vertex-facts">{facts.join(" · ") || "\u00a0"}</span>
        {node.share !== undefined && (
          <svg className="vertex-bar" viewBox="0 0 100 3" preserveAspectRatio="none" aria-hidden="true">
            <rect width={Math.min(1, node.share) * 100} height="3" />
          </svg>
        )}
      </button>
    </foreignObject>
  );
}
