// Everything below the hosts: the open window, figures and samples of the algorithm, traffic, links, events, settings.

import { byId, make, reconcile, setText, showFacts, showSentences, showTable } from "./elements.js";
import { STANDSTILL_SECONDS, UNKNOWN, bytes, capitalised, count, dateAndTime, duration } from "./formats.js";
import { figure, names, percent, spell, timeOfDay } from "./formats.js";

const BLOCKERS_MAX = 8;

/** Why this node does not move: short waits are part of every step, and not shown. And the open window, or the last. */
export function showWindow(status) {
  const { blockers, node, window: open } = status;
  const standing = blockers.filter(({ seconds }) => seconds >= STANDSTILL_SECONDS);
  const reasons = standing.map(({ reason, seconds }) => `${capitalised(reason)}, for ${duration(Math.floor(seconds))}.`);
  const rest = reasons.splice(BLOCKERS_MAX).length;
  if (rest > 0) reasons.push(`And ${count(rest)} more.`);
  showSentences("blockers", reasons);
  const hasWindows = node.run.window !== null;
  setText(byId("window-title"), hasWindows ? "Window" : "Waiting");
  setText(byId("window-waiting"), tellWaiting(status, hasWindows));
  showFacts("window-facts", hasWindows ? describeWindow(open) : []);
}

function tellWaiting({ blockers, is_ready: isReady, progress, state, window: open }, hasWindows) {
  if (state === "finished") return "The run is over.";
  if (blockers.length > 0) return `Waits for ${names(blockers.map(({ name }) => name))}.`;
  const isMeasuring = isReady && hasWindows && open.step === null;
  return isMeasuring ? `Step ${count(progress.step)} is being measured.` : "Waits for nobody.";
}

function describeWindow({ step, received, expected, opened_seconds: seconds, bound_seconds: bound, last_close: close }) {
  const missing = close?.missing.length > 0 ? `, without ${names(close.missing)}` : "";
  const late = close?.late > 0 ? `, ${count(close.late)} late` : "";
  return [
    ["Open", step === null ? "none" : `step ${count(step)}`, bound === null ? "" : `${duration(bound)} at most`],
    ["Received", step === null ? UNKNOWN : `${count(received)} of ${count(expected)}`, step === null ? "" : duration(seconds)],
    ["Last closed", `step ${count(close?.step)}`, `received ${count(close?.received)}${missing}${late}`],
    ["It took", duration(close?.waited_seconds), close?.reason ?? ""],
  ];
}

/** How a figure of an algorithm is written, by what its name ends or begins with. */
const WRITERS = [
  [/_seconds$/, duration],
  [/^bytes_(?!per_)/, bytes],
  [/_distance$/, (value) => percent(value, 2)],
  [/tokens|halvings$|^round$|^exchanges|equal_replicas$|^slow_links$/, count],
  [/./, figure],
];

/** What a model wrote is as long as it likes, and has a place of its own. */
export function showAlgorithm({ figures, words }) {
  const isSample = ([name]) => name.endsWith("_text");
  const told = Object.entries(words);
  const counted = Object.entries(figures).map(([name, value]) => {
    const [, write] = WRITERS.find(([pattern]) => pattern.test(name));
    return [name, write(value)];
  });
  const shown = [...told.filter((one) => !isSample(one)), ...counted];
  const samples = told.filter(isSample);
  byId("algorithm").hidden = shown.length + samples.length === 0;
  showFacts("algorithm-figures", shown.map(([name, text]) => [spell(name), text]));
  reconcile(byId("samples"), samples, {
    key: ([name]) => name,
    create: ([name]) => make("div", {}, make("dt", {}, spell(name)), make("dd", { tabindex: 0 })),
    update: (element, [, text]) => setText(element.lastElementChild, text),
  });
}

export function showTraffic({ traffic, updates, node }) {
  const { seedflood_bytes: sent, gossip_bytes: gossip, parameters, parameter_bytes: size } = traffic;
  const { rejected, ...counts } = updates;
  const reasons = Object.entries(rejected).map(([reason, number]) => `${count(number)} ${reason}`);
  const total = Object.values(rejected).reduce((sum, number) => sum + number, 0);
  const known = Object.entries(counts).filter(([, number]) => number !== null);
  const what = `Over all links of ${node.name}, in both directions.`;
  const whole = `all ${count(parameters)} parameters (${bytes(size)})`;
  const instead = `Exchanging ${whole} with each neighbour at every step would have cost ${bytes(gossip)}.`;
  setText(byId("traffic-sent"), bytes(sent));
  setText(byId("traffic-text"), gossip > 0 ? `${what} ${instead}` : what);
  showFacts("updates", [
    ...known.map(([name, number]) => [`Updates ${name}`, count(number)]),
    ["Rejected", count(total), reasons.join(", ")],
  ]);
}

const LINK_COLUMNS = [
  { word: "Link to", tell: ({ peer, address }) => peer ?? address ?? UNKNOWN },
  { word: "State", look: "condition", tell: ({ state }) => state },
  { word: "Sent", look: "number", tell: (link) => bytes(link.bytes_sent) },
  { word: "Received", look: "number", tell: (link) => bytes(link.bytes_received) },
  { word: "Pulled", look: "number minor", tell: (link) => bytes(link.pull_bytes_received) },
  { word: "Dropped", look: "number minor", tell: (link) => count(link.updates_dropped) },
  { word: "Hop", look: "number minor", tell: (link) => duration(link.hop_seconds) },
];

export function showLinks({ links }) {
  const isNone = links.length === 0;
  setText(byId("links-text"), isNone ? "No link yet. This node dials its peers for as long as it runs." : "");
  showTable("links", LINK_COLUMNS, links, {
    key: ({ origin, address, peer }) => origin ?? address ?? peer,
    look: ({ state }) => (state === "connected" ? "linked" : "silent"),
    title: ({ address }) => address ?? "dialled by the other side",
  });
}

const LEVELS = ["debug", "info", "warning", "error", "critical"];
const NOT_FACTS = ["time", "timestamp", "level", "event", "node", "run"];

/** Newest first. */
export function showEvents({ events }) {
  const least = LEVELS.indexOf(byId("events-narrowed").checked ? "warning" : "info");
  const shown = events.filter(({ level }) => LEVELS.indexOf(level) >= least).reverse();
  const byText = new Map(shown.map((event) => [JSON.stringify(event), event]));
  reconcile(byId("events"), [...byText], {
    key: ([text]) => text,
    create: ([, event]) => makeEvent(event),
    update: () => {},
  });
}

function makeEvent(event) {
  const date = new Date(event.time);
  const when = make("time", { datetime: date.toISOString(), title: dateAndTime(date) }, timeOfDay(date));
  const facts = Object.entries(event).filter(([name, value]) => !NOT_FACTS.includes(name) && tellFact(value) !== "");
  const spelled = facts.map(([name, value]) => {
    return make("span", {}, `${name.replaceAll("_", " ")} `, make("b", {}, tellFact(value)));
  });
  const level = event.level === "info" ? "" : `${event.level}: `;
  return make("li", { class: event.level }, when, make("strong", {}, `${level}${event.event}`), ...spelled);
}

function tellFact(value) {
  if (value === null) return "";
  if (typeof value === "number") return String(Number.isInteger(value) ? value : Number(value.toPrecision(4)));
  if (Array.isArray(value)) return value.map(tellFact).join(", ");
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

/** What rarely changes: all settings of the run by their own names, and what is on the disk. */
export function showColophon({ node, journal }) {
  const { algorithm, id, ...run } = node.run;
  const started = dateAndTime(new Date(1000 * node.started_at));
  const { bytes: size, ...counts } = journal;
  const told = Object.entries({ ...run, ...algorithm, ...counts }).filter(([, value]) => value !== null);
  showFacts("colophon", [
    ["Version", node.version],
    ["Origin", node.origin],
    ["Incarnation", count(node.incarnation)],
    ["Started", started],
    ["Run", id.slice(0, 16)],
    ["Journal", bytes(size)],
    ...told.map(([name, value]) => [spell(name), Number.isInteger(value) ? count(value) : String(value)]),
  ]);
}
