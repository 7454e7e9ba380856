// The conditions of hosts: one vocabulary for the graph, its legend and the table.

/** From what matters least to an operator to what matters most. `word`: what it is called; `text`: what it means. */
export const CONDITIONS = {
  self: { shape: "self", word: "this node", text: "The node that serves this page." },
  linked: { shape: "linked", word: "linked", text: "A neighbour with an open link to this node." },
  reachable: { shape: "reachable", word: "by relay", text: "No link with this node; its updates come through others." },
  joining: { shape: "behind", word: "catching up", text: "Here, but takes part in no step yet." },
  contradicts: { shape: "fault", word: "contradicting", text: "It contradicts the others: its updates do not count." },
  behind: { shape: "behind", word: "behind", text: "Here, but its updates lag several steps behind the foremost." },
  silent: { shape: "silent", word: "silent", text: "Windows waited for it too long, or nobody has a link with it." },
  left: { shape: "left", word: "left", text: "It said goodbye and is not waited for." },
  removed: { shape: "left", word: "removed", text: "The operator took it off the roster, or its time is over." },
  unknown: { shape: "unknown", word: "not here", text: "It never took part, and nobody has a link with it." },
};

const LIVE = new Set(["self", "linked", "reachable", "joining", "contradicts", "behind"]);
const collator = new Intl.Collator("en", { numeric: true });

export function isLive(condition) {
  return LIVE.has(condition);
}

/** What an operator should see first in a crowd. */
const WORST_FIRST = ["self", "silent", "contradicts", "behind", "joining", "unknown", "removed", "linked", "reachable", "left"];

/** The same members, this node first, then by how bad their condition is, and how far they lag. */
export function sortWorstFirst(members) {
  const rank = ({ condition }) => WORST_FIRST.indexOf(condition);
  return [...members].sort((a, b) => rank(a) - rank(b) || (a.condition === "behind" && b.lag_steps - a.lag_steps));
}

/** Members as the page shows them: this node first, the others by name, each with its `condition`. */
export function describeMembers(status) {
  const behindSteps = 3 * (status.node.run.local_steps ?? 1); // of an algorithm whose updates are heard of
  const condition = (member) => {
    const isHere = member.status === "linked" || member.status === "reachable";
    if (isHere && member.contradicts) return "contradicts";
    if (isHere && member.first_step === null && !member.is_relay) return "joining";
    if (isHere && (member.lag_steps ?? 0) > behindSteps) return "behind";
    return member.status in CONDITIONS ? member.status : "unknown";
  };
  return status.members
    .map((member) => ({ ...member, condition: condition(member) }))
    .sort((a, b) => (b.condition === "self") - (a.condition === "self") || collator.compare(a.name, b.name));
}
