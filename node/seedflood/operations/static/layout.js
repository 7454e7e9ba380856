// Where the hosts of the graph stand: springs along links, repulsion between all (d3-force, vendor/d3-force).
//
// Springs alone leave a large graph folded, so they start from an unfolded one: each host stands by how much nearer it
// is, in hops, to one end of the graph than to the other, once along its length and once across. A ring comes out as a
// ring, a grid as a grid. Nothing is left to chance, and hosts that were placed before move little when others come.

const { d3 } = globalThis;

const LINK_LENGTH = 40;
const TICKS_NEW = 300;
const TICKS_MORE = 80;

/** How much more one direction may be stretched than the other, to fill a wide or a narrow place. */
const STRETCH_MAX = 1.8;

export class Layout {
  #bodies = new Map();
  #shape = "";

  /** Places the origins, of whom `edges` are pairs. */
  arrange(origins, edges) {
    const shape = JSON.stringify([origins, edges]);
    if (shape === this.#shape) return;
    this.#shape = shape;
    const old = this.#bodies;
    const isNew = old.size < origins.length / 2;
    const start = isNew ? unfold(origins, edges) : (id) => old.get(id) ?? nearNeighbour(id, edges, old);
    this.#bodies = new Map(origins.map((id) => [id, { id, ...position(start(id)) }]));
    const links = edges.map(([source, target]) => ({ source, target }));
    d3.forceSimulation([...this.#bodies.values()])
      .force(
        "links",
        d3
          .forceLink(links)
          .id((body) => body.id)
          .distance(LINK_LENGTH)
          .strength(0.7),
      )
      .force("repulsion", d3.forceManyBody().strength(-180))
      .force("x", d3.forceX().strength(0.03))
      .force("y", d3.forceY().strength(0.03))
      .alpha(isNew ? 1 : 0.2)
      .stop()
      .tick(isNew ? TICKS_NEW : TICKS_MORE);
  }

  /** Positions inside a rectangle of this size, in its pixels. */
  fit(width, height) {
    const bodies = [...this.#bodies.values()];
    const [left, right] = extent(bodies.map((body) => body.x));
    const [top, bottom] = extent(bodies.map((body) => body.y));
    const scales = [width / Math.max(right - left, 1e-3), height / Math.max(bottom - top, 1e-3)];
    const most = Math.min(...scales) * STRETCH_MAX;
    const [across, down] = scales.map((scale) => Math.min(scale, most));
    return new Map(
      bodies.map((body) => [
        body.id,
        { x: width / 2 + (body.x - (left + right) / 2) * across, y: height / 2 + (body.y - (top + bottom) / 2) * down },
      ]),
    );
  }
}

function position(point) {
  return point ? { x: point.x, y: point.y } : {};
}

/** A first position for every origin: high-dimensional embedding (Harel, Koren 2002) with two pairs of pivots. */
function unfold(origins, edges) {
  const neighbours = new Map(origins.map((id) => [id, []]));
  for (const [a, b] of edges) {
    neighbours.get(a).push(b);
    neighbours.get(b).push(a);
  }
  const hops = (id) => countHops(id, neighbours);
  const farthest = (...all) => {
    const nearness = (id) => Math.min(...all.map((one) => one.get(id)));
    return origins.reduce((best, id) => (nearness(id) > nearness(best) ? id : best), origins[0]);
  };
  const west = hops(farthest(hops(origins[0])));
  const east = hops(farthest(west));
  const north = hops(farthest(west, east));
  const south = hops(farthest(north));
  return (id) => {
    const along = ((east.get(id) - west.get(id)) * LINK_LENGTH) / 2;
    const across = ((south.get(id) - north.get(id)) * LINK_LENGTH) / 2;
    return { x: along + across, y: across - along }; // turned by an eighth: the pivots are corners
  };
}

/** Hops from one host to every other; who cannot be reached is farther than anybody. */
function countHops(start, neighbours) {
  const found = new Map([[start, 0]]);
  for (const [id, distance] of found) {
    for (const other of neighbours.get(id)) if (!found.has(other)) found.set(other, distance + 1);
  }
  for (const id of neighbours.keys()) if (!found.has(id)) found.set(id, neighbours.size);
  return found;
}

function nearNeighbour(id, edges, bodies) {
  const edge = edges.find(([a, b]) => (a === id && bodies.has(b)) || (b === id && bodies.has(a)));
  if (!edge) return null;
  const beside = bodies.get(edge[0] === id ? edge[1] : edge[0]);
  return { x: beside.x * 1.2 + 1, y: beside.y * 1.2 + 1 };
}

function extent(values) {
  return [Math.min(...values), Math.max(...values)];
}
