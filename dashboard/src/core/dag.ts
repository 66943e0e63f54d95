/** Where the vertices of a graph stand: in layers from left to right, with few crossings. */

export interface DagInput {
  name: string;
  inputs: string[];
}

export interface Placed {
  name: string;
  x: number;
  y: number;
}

export interface DagEdge {
  from: string;
  to: string;
  points: [number, number][];
}

export interface DagLayout {
  nodes: Placed[];
  edges: DagEdge[];
  width: number;
  height: number;
}

export interface DagSizes {
  width: number;
  height: number;
  gapX: number;
  gapY: number;
}

export const SIZES: DagSizes = { width: 186, height: 78, gapX: 44, gapY: 22 };
const SWEEPS = 6;

interface Cell {
  id: string;
  real: boolean;
  before: string[];
  after: string[];
}

/** Each vertex stands right of all that it reads. What reads itself, which the node does not accept, stands at the left. */
export function layersOf(vertices: DagInput[]): Map<string, number> {
  const inputs = new Map(vertices.map((v) => [v.name, v.inputs]));
  const depth = new Map<string, number>();
  const open = new Set<string>();
  const visit = (name: string): number => {
    const known = depth.get(name);
    if (known !== undefined) return known;
    if (open.has(name)) return 0;
    open.add(name);
    const reads = (inputs.get(name) ?? []).filter((i) => inputs.has(i));
    const found = reads.length ? 1 + Math.max(...reads.map(visit)) : 0;
    open.delete(name);
    depth.set(name, found);
    return found;
  };
  for (const v of vertices) visit(v.name);
  // A source stands right before the first that reads it, not at the far left.
  for (const v of vertices) {
    if (v.inputs.some((i) => inputs.has(i))) continue;
    const readers = vertices.filter((r) => r.inputs.includes(v.name)).map((r) => depth.get(r.name) ?? 1);
    if (readers.length) depth.set(v.name, Math.max(0, Math.min(...readers) - 1));
  }
  return depth;
}

export function layOut(vertices: DagInput[], sizes: DagSizes = SIZES): DagLayout {
  const depth = layersOf(vertices);
  const cells = new Map<string, Cell>();
  const layers: string[][] = [];
  const put = (id: string, layer: number, real: boolean): Cell => {
    const cell = { id, real, before: [], after: [] };
    cells.set(id, cell);
    (layers[layer] ??= []).push(id);
    return cell;
  };
  for (const v of vertices) put(v.name, depth.get(v.name) ?? 0, true);
  const chains: { from: string; to: string; ids: string[] }[] = [];
  for (const v of vertices) {
    for (const input of new Set(v.inputs)) {
      const from = depth.get(input);
      const to = depth.get(v.name) ?? 0;
      if (from === undefined || from >= to) continue;
      const ids = [input];
      // Edges that pass layers by have a place in each of them.
      for (let layer = from + 1; layer < to; layer++) {
        const id = `${input}\0${v.name}\0${layer}`;
        put(id, layer, false);
        ids.push(id);
      }
      ids.push(v.name);
      for (let i = 1; i < ids.length; i++) {
        cells.get(ids[i - 1]!)!.after.push(ids[i]!);
        cells.get(ids[i]!)!.before.push(ids[i - 1]!);
      }
      chains.push({ from: input, to: v.name, ids });
    }
  }
  for (let i = 0; i < layers.length; i++) layers[i] ??= [];
  order(layers, cells);
  const place = positions(layers, cells, sizes);
  const nodes = vertices.map((v) => ({ name: v.name, ...place.get(v.name)! }));
  const edges = chains.map(({ from, to, ids }) => ({
    from,
    to,
    points: ids.flatMap((id): [number, number][] => {
      const { x, y } = place.get(id)!;
      const middle = y + sizes.height / 2;
      if (id === from) return [[x + sizes.width, middle]];
      return id === to ? [[x, middle]] : [[x, middle], [x + sizes.width, middle]];
    }),
  }));
  const height = Math.max(sizes.height, ...[...place.values()].map((p) => p.y + sizes.height));
  const width = Math.max(sizes.width, layers.length * (sizes.width + sizes.gapX) - sizes.gapX);
  return { nodes, edges, width, height };
}

/** Sweeps to and fro: each cell goes to the middle of those that it is connected with. */
function order(layers: string[][], cells: Map<string, Cell>): void {
  const rank = new Map<string, number>();
  const number = (layer: string[]): void => layer.forEach((id, index) => rank.set(id, index));
  layers.forEach(number);
  for (let sweep = 0; sweep < SWEEPS; sweep++) {
    const down = sweep % 2 === 0;
    const turn = down ? layers : [...layers].reverse();
    for (const layer of turn) {
      const wanted = new Map(
        layer.map((id, index) => {
          const near = down ? cells.get(id)!.before : cells.get(id)!.after;
          return [id, near.length ? mean(near.map((n) => rank.get(n)!)) : index];
        }),
      );
      layer.sort((a, b) => wanted.get(a)! - wanted.get(b)! || rank.get(a)! - rank.get(b)!);
      number(layer);
    }
  }
}

function positions(layers: string[][], cells: Map<string, Cell>, sizes: DagSizes): Map<string, { x: number; y: number }> {
  const place = new Map<string, { x: number; y: number }>();
  const step = sizes.height + sizes.gapY;
  layers.forEach((layer, column) =>
    layer.forEach((id, row) => place.set(id, { x: column * (sizes.width + sizes.gapX), y: row * step })),
  );
  for (let sweep = 0; sweep < SWEEPS; sweep++) {
    for (const layer of sweep % 2 ? [...layers].reverse() : layers) {
      const wanted = layer.map((id) => {
        const cell = cells.get(id)!;
        const near = sweep % 2 ? cell.after : cell.before;
        return near.length ? mean(near.map((n) => place.get(n)!.y)) : place.get(id)!.y;
      });
      // Kept apart in both directions, and the mean of the two taken: symmetric where the graph is.
      const low: number[] = [];
      wanted.forEach((y, i) => low.push(i ? Math.max(y, low[i - 1]! + step) : y));
      const high = [...wanted];
      for (let i = wanted.length - 2; i >= 0; i--) high[i] = Math.min(high[i]!, high[i + 1]! - step);
      layer.forEach((id, i) => (place.get(id)!.y = (low[i]! + high[i]!) / 2));
    }
  }
  const top = Math.min(...[...place.values()].map((p) => p.y));
  for (const p of place.values()) p.y = Math.round(p.y - top);
  return place;
}

function mean(values: number[]): number {
  return values.reduce((a, b) => a + b, 0) / values.length;
}

/** A smooth line through the points, flat where it leaves and where it arrives. */
export function curve(points: [number, number][]): string {
  const [first, ...rest] = points;
  if (!first) return "";
  let [x, y] = first;
  let path = `M${x} ${y}`;
  for (const [nextX, nextY] of rest) {
    const middle = (x + nextX) / 2;
    path += nextY === y ? ` L${nextX} ${nextY}` : ` C${middle} ${y} ${middle} ${nextY} ${nextX} ${nextY}`;
    [x, y] = [nextX, nextY];
  }
  return path;
}
