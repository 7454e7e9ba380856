// Links as hosts state them, and those that broke a while ago.
//
// When a host dies its neighbours stop stating their links with it. The page goes on drawing such a link, broken, while
// one of its ends is not heard, or for a minute, so that a host that was just lost stays in its place.

import { isLive } from "./members.js";

const BROKEN_SECONDS_MAX = 60;

export class Edges {
  #statedAt = new Map();

  /** Pairs of origins, each once, with `isBroken`. now: seconds of any clock. */
  update(members, stated, now) {
    const conditions = new Map(members.map((member) => [member.origin, member.condition]));
    for (const pair of stated) {
      const [a, b] = [...pair].sort();
      if (a !== b) this.#statedAt.set(`${a} ${b}`, now);
    }
    const edges = [];
    for (const [name, at] of [...this.#statedAt].sort()) {
      const [a, b] = name.split(" ");
      const areBothLive = [a, b].every((origin) => isLive(conditions.get(origin)));
      const isGone = areBothLive && now - at > BROKEN_SECONDS_MAX;
      if (isGone || !conditions.has(a) || !conditions.has(b)) this.#statedAt.delete(name);
      else edges.push({ a, b, isBroken: at < now || !areBothLive });
    }
    return edges;
  }
}
