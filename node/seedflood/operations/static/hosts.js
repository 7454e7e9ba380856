// All hosts: the condition of each, a drawing of who is linked with whom if they are few, and a table.

import { byId, makeSvg, reconcile, setAttributes, setText, showTable } from "./elements.js";
import { UNKNOWN, count, decimal, duration, plural } from "./formats.js";

/** By what matters most to an operator. word: what it is called; mark: its sign in the drawing; text: what it means. */
const CONDITIONS = {
  self: { word: "this node", mark: "", text: "The node that serves this page." },
  silent: { word: "silent", mark: "!", text: "Windows waited for it too long, or nobody has a link with it." },
  contradicts: { word: "contradicting", mark: "!", text: "It contradicts the others: its updates do not count." },
  behind: { word: "behind", mark: "~", text: "Here, but its updates lag several steps behind the foremost." },
  joining: { word: "catching up", mark: "~", text: "Here, but takes part in no step yet." },
  unknown: { word: "not here", mark: "?", text: "It never took part, and nobody has a link with it." },
  removed: { word: "removed", mark: "×", text: "The operator took it off the roster, or its time is over." },
  linked: { word: "linked", mark: "", text: "A neighbour with an open link to this node." },
  reachable: { word: "by relay", mark: "", text: "No link with this node; its updates come through others." },
  left: { word: "left", mark: "×", text: "It said goodbye and is not waited for." },
};
const LIVE = ["self", "linked", "reachable", "joining", "contradicts", "behind"];
const BEHIND_ROUNDS = 3;

const DRAWN_MAX = 24;
const ROWS_MAX = 60;
const RADIUS = 125;
const NAME_LENGTH_MAX = 12;

/** The members of a status, each with its `condition`, whether it `isLive`, and the `rank` of what is wrong with it. */
export function describeMembers({ members, node }) {
  const behindSteps = BEHIND_ROUNDS * (node.run.local_steps ?? 1);
  const described = members.map((member) => {
    const condition = findCondition(member, behindSteps);
    const rank = Object.keys(CONDITIONS).indexOf(condition);
    return { ...member, condition, rank, isLive: LIVE.includes(condition) };
  });
  const { compare } = new Intl.Collator("en", { numeric: true });
  return described.sort((a, b) => compare(a.name, b.name));
}

function findCondition(member, behindSteps) {
  const isHere = member.status === "linked" || member.status === "reachable";
  if (isHere && member.contradicts) return "contradicts";
  if (isHere && member.first_step === null && !member.is_relay) return "joining";
  if (isHere && member.lag_steps > behindSteps) return "behind";
  return member.status in CONDITIONS ? member.status : "unknown";
}

export function showHosts(status, members) {
  const { delays, diameter, pairs, updates } = status;
  const hasReputations = members.some(({ reputation }) => reputation !== null);
  const sentences = [tally(members)];
  if (diameter !== null) sentences.push(`The longest path has ${plural(diameter, "hop")}.`);
  if (delays.hop_seconds_p50 !== null) {
    const slow = duration(delays.hop_seconds_p99);
    sentences.push(`A hop takes ${duration(delays.hop_seconds_p50)} (median), the slowest in a hundred ${slow}.`);
  }
  if (pairs.length > 0) sentences.push("Along thick lines this node exchanges parameters.");
  if (hasReputations) sentences.push("Reputation: how far a host agrees with the others; near 0 is chance.");
  setText(byId("hosts-text"), sentences.join(" "));
  const isDrawn = members.length > 0 && members.length <= DRAWN_MAX;
  byId("drawing").toggleAttribute("hidden", !isDrawn);
  if (isDrawn) draw(status, members);
  showMembers(members, hasReputations, updates.originated !== null);
}

/** "4 hosts: this node, 2 linked, 1 by relay." */
function tally(members) {
  const parts = Object.entries(CONDITIONS).map(([condition, { word }]) => {
    const number = members.filter((member) => member.condition === condition).length;
    if (number === 0) return null;
    return condition === "self" ? word : `${count(number)} ${word}`;
  });
  const present = parts.filter((part) => part !== null);
  return `${plural(members.length, "host")}${present.length > 0 ? ": " : ""}${present.join(", ")}.`;
}

function draw({ edges, pairs }, members) {
  const [lines, hosts] = byId("drawing").children;
  const places = new Map(members.map(({ origin }, index) => [origin, findPlace(index, members.length)]));
  const known = edges.filter((edge) => edge.every((origin) => places.has(origin)));
  const self = members.find(({ condition }) => condition === "self")?.origin;
  const spellEdge = (edge) => edge.toSorted().join(" ");
  const exchanging = pairs.map(spellEdge);
  setAttributes(byId("drawing"), { "aria-label": tally(members) });
  reconcile(lines, known, {
    key: spellEdge,
    create: () => makeSvg("line"),
    update: (line, edge) => {
      const [from, to] = edge.map((origin) => places.get(origin));
      const isExchanging = exchanging.includes(spellEdge(edge));
      const look = `${edge.includes(self) ? "own" : "other"}${isExchanging ? " exchanging" : ""}`;
      setAttributes(line, { class: look, x1: from.x, y1: from.y, x2: to.x, y2: to.y });
    },
  });
  reconcile(hosts, members, {
    key: ({ origin }) => origin,
    create: () => makeSvg("g", makeSvg("title"), makeSvg("circle"), makeSvg("text"), makeSvg("text")),
    update: (host, member) => drawHost(host, member, places.get(member.origin)),
  });
}

/** Where on the circle: from the top, clockwise, evenly in height, so that no name covers another. */
function findPlace(index, total) {
  const depth = (2 * Math.min(index, total - index)) / total;
  const y = RADIUS * (2 * depth - 1);
  const x = Math.sqrt(RADIUS ** 2 - y ** 2);
  return { x: Math.round(index > total / 2 ? -x : x), y: Math.round(y) };
}

function drawHost(host, { name, condition }, { x, y }) {
  const [title, circle, mark, label] = host.children;
  const anchors = { "-1": "end", 0: "middle", 1: "start" };
  const side = Math.sign(x);
  setAttributes(host, { class: condition, transform: `translate(${x} ${y})` });
  setText(title, `${name}: ${CONDITIONS[condition].word}`);
  setAttributes(circle, { r: condition === "self" ? 10 : 8 });
  setAttributes(mark, { "text-anchor": "middle", dy: 4.5 });
  setText(mark, CONDITIONS[condition].mark);
  setAttributes(label, { "text-anchor": anchors[side], dx: 15 * side, dy: side === 0 ? Math.sign(y) * 20 + 4.5 : 4.5 });
  setText(label, name.length > NAME_LENGTH_MAX ? `${name.slice(0, NAME_LENGTH_MAX - 1)}…` : name);
}

/** Of many hosts the worst come first, and only so many as can be read. */
function showMembers(members, hasReputations, hasUpdates) {
  const isCrowd = members.length > DRAWN_MAX;
  const wanted = byId("members-search").value.trim().toLowerCase();
  const isWanted = ({ name, condition }) => `${name} ${CONDITIONS[condition].word}`.toLowerCase().includes(wanted);
  const found = isCrowd ? members.filter(isWanted) : members;
  const shown = found.toSorted((a, b) => (isCrowd ? a.rank - b.rank || b.lag_steps - a.lag_steps : 0)).slice(0, ROWS_MAX);
  byId("members-find").hidden = !isCrowd;
  setText(byId("members-count"), `${count(shown.length)} of ${count(found.length)}, worst first`);
  const columns = [
    { word: "Host", tell: ({ name }) => name },
    { word: "Condition", look: "condition", tell: ({ condition }) => CONDITIONS[condition].word },
  ];
  if (hasReputations) columns.push({ word: "Reputation", look: "number", tell: (one) => decimal(one.reputation, 1) });
  if (hasUpdates) columns.push({ word: "Received to", look: "number minor", tell: ({ step }) => count(step) });
  if (hasUpdates) columns.push({ word: "Behind", look: "number", tell: ({ lag_steps: lag }) => count(lag) });
  showTable("members", columns, shown, {
    key: ({ origin }) => origin,
    look: ({ condition }) => condition,
    title: ({ name, origin, condition, incarnation }) =>
      `${name} · ${origin} · incarnation ${incarnation ?? UNKNOWN}. ${CONDITIONS[condition].text}`,
  });
}
