// The graph of tiers and streams: which tier is in which column, and the streams between. Pure.

export type Node = { name: string; inputs: string[]; outputs: string[] };
/** A stream from a tier, or from outside (null), to a tier, or to a reader outside (null). */
export type Edge = { stream: string; from: string | null; to: string | null };
export type Graph = { columns: string[][]; edges: Edge[] };

/** Return the columns of tiers, the entry first, and all edges. A loop does not lengthen a path. */
export function graph(tiers: Node[]): Graph {
  const writers = new Map(tiers.flatMap((tier) => tier.outputs.map((stream) => [stream, tier.name] as const)));
  const read = new Set(tiers.flatMap((tier) => tier.inputs));
  const edges: Edge[] = [
    ...tiers.flatMap((tier) =>
      tier.inputs.map((stream) => ({ stream, from: writers.get(stream) ?? null, to: tier.name })),
    ),
    ...tiers.flatMap((tier) =>
      tier.outputs.filter((stream) => !read.has(stream)).map((stream) => ({ stream, from: tier.name, to: null })),
    ),
  ];
  const before = (name: string) => edges.filter((edge) => edge.to === name && edge.from !== null).map((edge) => edge.from!);
  const depths = new Map<string, number>();
  const depth = (name: string, path: Set<string>): number => {
    const known = depths.get(name);
    if (known !== undefined) return known;
    if (path.has(name)) return -1;
    const further = new Set(path).add(name);
    const found = 1 + Math.max(-1, ...before(name).map((other) => depth(other, further)));
    if (path.size === 0) depths.set(name, found);
    return found;
  };
  const columns: string[][] = [];
  for (const tier of tiers) (columns[depth(tier.name, new Set())] ??= []).push(tier.name);
  return { columns: columns.filter((column) => column !== undefined), edges };
}

export type Box = { x: number; y: number; width: number; height: number };
export type Sizes = { width: number; height: number; gap: number; row: number; margin: number };

/** Return a box for each tier, columns from left to right, and the size of the drawing. */
export function boxes(columns: string[][], sizes: Sizes): { of: Map<string, Box>; width: number; height: number } {
  const rows = Math.max(1, ...columns.map((column) => column.length));
  const height = rows * (sizes.height + sizes.row) - sizes.row;
  const of = new Map<string, Box>();
  columns.forEach((column, number) => {
    const used = column.length * (sizes.height + sizes.row) - sizes.row;
    column.forEach((name, row) =>
      of.set(name, {
        x: sizes.margin + sizes.gap + number * (sizes.width + sizes.gap),
        y: (height - used) / 2 + row * (sizes.height + sizes.row),
        width: sizes.width,
        height: sizes.height,
      }),
    );
  });
  const width = 2 * sizes.margin + sizes.gap + columns.length * (sizes.width + sizes.gap);
  return { of, width, height };
}

/** Return the points of a sparkline as an SVG path; a gap where there is no figure. */
export function spark(values: (number | null)[], width: number, height: number): string {
  const known = values.filter((value) => value !== null);
  const top = Math.max(1e-9, ...known);
  const step = values.length > 1 ? width / (values.length - 1) : 0;
  let path = "";
  let pen = "M";
  values.forEach((value, number) => {
    if (value === null) {
      pen = "M";
      return;
    }
    path += `${pen}${(number * step).toFixed(1)},${(height - (value / top) * height).toFixed(1)}`;
    pen = "L";
  });
  return path;
}
