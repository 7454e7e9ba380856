// The open window, counts of updates, traffic, and the settings of the run.

import { describeAlgorithm } from "./algorithm.js";
import { byId, make, reconcile, setAttribute, setText } from "./elements.js";
import { UNKNOWN, STANDSTILL_SECONDS, age, bytes, capitalised, count, dateAndTime, duration, figure, names, plural } from "./formats.js";

const NO_BREAK = "\u00a0";

/** Between two windows, while this node measures, the figures of the last one stay. */
export function showWindow(status) {
  const { window: open, node } = status;
  showBlockers(status.blockers);
  if (!describeAlgorithm(status).hasWindows) {
    setText(byId("window-title"), "Waiting");
    setText(byId("window-waiting"), waitingWithoutWindows(status));
    return;
  }
  const isOpen = open.step !== null && open.expected > 0;
  const closed = open.last_close;
  const heard = isOpen ? open.heard : (closed?.heard ?? null);
  const expected = isOpen ? open.expected : closed && closed.heard + closed.missing.length;
  const step = isOpen ? open.step : (closed?.step ?? null);
  setText(byId("window-title"), step === null ? "Window" : `Window of step ${count(step)}`);
  setText(byId("window-heard"), expected ? `${count(heard)} of ${count(expected)}` : UNKNOWN);
  setAttribute(byId("window-progress"), "value", expected ? (heard / expected).toFixed(3) : 0);
  setText(byId("window-waiting"), waiting(status, isOpen));
  setText(byId("window-open"), isOpen ? duration(open.opened_seconds) : UNKNOWN);
  const limitless = { strict: "as long as it takes", none: "none", bounded: UNKNOWN };
  setText(
    byId("window-bound"),
    open.bound_seconds === null ? (limitless[node.run.window] ?? UNKNOWN) : duration(open.bound_seconds),
  );
  setText(byId("window-last"), lastClose(open.last_close));
}

const BLOCKERS_MAX = 8;

/** Why this node does not move, and for how long. Short waits are part of every step, and not shown. */
function showBlockers(blockers) {
  const standing = blockers.filter((one) => one.seconds >= STANDSTILL_SECONDS);
  const shown = standing.slice(0, BLOCKERS_MAX);
  const rest = standing.length - shown.length;
  const lines = shown.map((one) => [
    `${one.kind} ${one.origin ?? one.name}`, // two hosts may have one name
    `${capitalised(one.reason)}, for ${age(one.seconds)}.`,
  ]);
  if (rest > 0) lines.push(["rest", `And ${count(rest)} more.`]);
  reconcile(byId("blockers"), lines, {
    key: ([key]) => key,
    create: () => make("li"),
    update: (item, [, text]) => setText(item, text),
  });
}

function waiting({ window: open, state, is_ready: isReady, progress, blockers }, isOpen) {
  if (state === "finished") return "Closed. It was the last one of the run.";
  if (!isOpen && isReady) return `${open.last_close ? "Closed. " : ""}Step ${count(progress.step)} is being measured.`;
  if (!isOpen) return "No window is open: this node publishes nothing.";
  if (blockers.length > 0) return `Waits for ${names(blockers.map((one) => one.name))}.`;
  return open.heard >= open.expected ? "Everybody was heard." : NO_BREAK;
}

function waitingWithoutWindows({ state, blockers }) {
  if (state === "finished") return "The run is over.";
  return blockers.length > 0 ? `Waits for ${names(blockers.map((one) => one.name))}.` : "Waits for nobody.";
}

function lastClose(close) {
  if (close === null) return UNKNOWN;
  const missing = close.missing.length > 0 ? `, without ${names(close.missing, 3)}` : "";
  const late = close.late > 0 ? `, ${count(close.late)} late` : "";
  return `step ${count(close.step)} after ${duration(close.waited_seconds)}: ${close.reason}${missing}${late}`;
}

function spellJournal({ bundles, records, bytes: size, closed_epochs: epochs }) {
  if (size === null) return null;
  const counted = [
    bundles === null ? null : plural(bundles, "bundle"),
    records ? plural(records, "record") : null,
    bytes(size),
    epochs === null ? null : plural(epochs, "closed epoch"),
  ];
  return counted.filter((words) => words !== null).join(", ");
}

/** How settings of an algorithm are called and written; others bear their own name. */
const SETTINGS = {
  window: ["Windows", String],
  local_steps: ["Steps per message", count],
  refresh_period: ["Epoch", (value) => plural(value, "step")],
};

function spellSetting([name, value]) {
  const [word, write] = SETTINGS[name] ?? [capitalised(name.replaceAll("_", " ")), String];
  return [word, value === null ? null : write(value)];
}

const UPDATES = [
  ["originated", "own", "Updates that this node published."],
  ["received", "received", "Updates that came over links, new ones and duplicates."],
  ["duplicate", "duplicate", "Came again over another link, and were dropped."],
  ["applied", "applied", "Are in the model, each exactly once."],
  ["late", "late", "Came after their window had closed, and were applied in a later one."],
  ["rejected", "rejected", "Broke a rule, and were dropped and logged."],
];

export function showUpdates(status) {
  const { updates } = status;
  const rejected = Object.entries(updates.rejected);
  const total = rejected.reduce((sum, [, number]) => sum + number, 0);
  const reasons = rejected.map(([reason, number]) => `${reason}: ${count(number)}`).join(", ");
  const known = describeAlgorithm(status).hasUpdates ? UPDATES : UPDATES.filter(([name]) => name === "rejected");
  reconcile(byId("updates"), known, {
    key: ([name]) => name,
    create: ([, word, text]) => make("div", { title: text }, make("dt", {}, word), make("dd")),
    update: (item, [name]) => {
      const isRejected = name === "rejected";
      setText(item.lastElementChild, count(isRejected ? total : updates[name]));
      item.classList.toggle("is-bad", isRejected && total > 0);
      if (isRejected && reasons) setAttribute(item, "title", reasons);
    },
  });
}

export function showTraffic({ traffic, node }) {
  const { seedflood_bytes: sent, gossip_bytes: gossip } = traffic;
  setText(byId("traffic-sent"), bytes(sent));
  byId("traffic-compared").hidden = gossip === null;
  if (gossip === null) {
    setText(byId("traffic-text"), `Over all links of ${node.name}, in both directions, so far.`);
    return;
  }
  setText(byId("traffic-gossip"), gossip > 0 ? bytes(gossip) : UNKNOWN);
  const size = `all ${count(traffic.parameters)} parameters (${bytes(traffic.parameter_bytes)})`;
  const ratio = sent > 0 && gossip > sent ? ` That is ${figure(gossip / sent)} times as much.` : "";
  setText(
    byId("traffic-text"),
    gossip > 0
      ? `Over all links of ${node.name}, in both directions, so far; the other figure is what exchanging ${size} ` +
          `with each neighbour at every step would have cost.${ratio}`
      : "Counted from the first step on: bytes over all links, and what exchanging parameters would have cost instead.",
  );
}

export function showDelays({ delays, diameter }) {
  setText(byId("hop-median"), duration(delays.hop_seconds_p50));
  setText(byId("hop-slow"), duration(delays.hop_seconds_p99));
  setText(byId("diameter"), diameter === null ? UNKNOWN : plural(diameter, "hop"));
}

export function showColophon({ node, journal }) {
  const { run } = node;
  const lines = [
    ["Version", node.version],
    ["Origin", node.origin],
    ["Started", dateAndTime(new Date(1000 * node.started_at))],
    ["Incarnation", node.incarnation],
    ["Run", run.id.slice(0, 16)],
    ["Model", run.model],
    ["Task", run.task],
    ["Mode", run.mode],
    ["Hosts", count(run.clients)],
    ["Batch", plural(run.batch_size, "row")],
    ...Object.entries(run.algorithm).map(spellSetting),
    ["Journal", spellJournal(journal)],
  ];
  reconcile(byId("colophon"), lines, {
    key: ([name]) => name,
    create: ([name]) => make("div", {}, make("dt", {}, name), make("dd")),
    update: (item, [, value]) => setText(item.lastElementChild, value ?? UNKNOWN),
  });
}
