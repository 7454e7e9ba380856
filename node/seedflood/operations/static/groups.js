// A graph of hundreds of hosts as a tree of groups that can be read: this node, its neighbours, and behind each of them
// the hosts that are nearest through it, one group for each condition. Links between groups are not drawn.

/** With more hosts than this the graph shows groups, and the table the worst hosts first. */
export const CROWD = 100;

/**
 * { members, edges, groupOf }: groups in place of members and links (`a`, `b`, `isBroken`), and the group of each origin.
 * A group has the condition of its hosts, and their `count`. words: `CONDITIONS`.
 */
export function groupHosts(members, edges, words) {
  const self = members.find(({ condition }) => condition === "self")?.origin;
  const branchOf = findBranches(self, members, edges);
  const groups = new Map();
  const groupOf = new Map();
  for (const member of members) {
    const { origin, condition } = member;
    const branch = branchOf.get(origin) ?? self; // nobody is known to be linked with it
    const key = branch === origin ? origin : `${branch}-${condition}`;
    const group = groups.get(key) ?? { ...member, origin: key, branch, count: 0 };
    group.count += 1;
    if (key !== origin) group.name = `${group.count} ${words[condition].word}`;
    groups.set(key, group);
    groupOf.set(origin, key);
  }
  const own = edges.filter(({ a, b }) => a === self || b === self);
  const behind = [...groups.values()].filter(({ origin, branch }) => origin !== branch);
  const tree = [...own, ...behind.map(({ origin, branch }) => ({ a: branch, b: origin, isBroken: branch === self }))];
  return { members: [...groups.values()], edges: tree, groupOf };
}

/** By host, the neighbour of this node through which it is nearest; this node and its neighbours are their own. */
function findBranches(self, members, edges) {
  const linked = new Map(members.map(({ origin }) => [origin, []]));
  for (const { a, b } of edges) {
    linked.get(a).push(b);
    linked.get(b).push(a);
  }
  const branchOf = new Map([[self, self]]);
  for (const [origin, branch] of branchOf) {
    for (const other of linked.get(origin) ?? []) {
      if (!branchOf.has(other)) branchOf.set(other, origin === self ? other : branch);
    }
  }
  return branchOf;
}
