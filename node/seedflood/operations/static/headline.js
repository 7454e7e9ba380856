// The top of the page: which node this is, its state, what is wrong, how far the run is, and how old all of it is.

import { byId, setAttributes, setText, showFacts, showSentences } from "./elements.js";
import { STANDSTILL_SECONDS, UNKNOWN, bytes, capitalised, count, describeFigures, duration } from "./formats.js";
import { figure, loss, names, percent, timeOfDay } from "./formats.js";

/** The tone of a state, and what it means for someone who has never seen this page. */
const STATES = {
  loading: ["busy", "Reads the model and its data."],
  joining: ["busy", "Looks for a neighbour that says how far the run is."],
  "catching up": ["busy", "Pulls what it has missed; measures nothing yet."],
  ready: ["good", "Takes part."],
  "stands still": ["bad", "Has waited for minutes without a step."],
  draining: ["busy", "Leaves the run: publishes nothing more."],
  finished: ["good", "The run is over; nothing is missing."],
  doubted: ["bad", "Its replica was found to differ from a neighbour's, and is made again."],
  "disk full": ["bad", "Publishes nothing, but relays what others say; goes on when there is space."],
  "out of time": ["bad", "By its clock it may not take part now, and the clock may be wrong; waits."],
};

export function showHeadline(status, members) {
  const { node, progress, state } = status;
  const contradicting = members.filter((member) => member.contradicts);
  const [tone, text] = STATES[state] ?? ["busy", ""];
  const troubles = [];
  if (progress.rise) troubles.push(", but unlearns");
  else if (contradicting.some(({ condition }) => condition === "self")) troubles.push(", but contradicts the others");
  const word = `${state}${troubles.join("")}`;
  const share = progress.steps ? Math.min(1, (progress.step ?? 0) / progress.steps) : 0;
  setText(byId("run"), `Run ${node.run.name} · ${node.run.id.slice(0, 12)}`);
  setText(byId("node-name"), node.name);
  setText(byId("state"), word);
  setAttributes(byId("state"), { "data-tone": troubles.length > 0 ? "bad" : tone });
  setText(byId("state-reason"), tellReason(status) ?? text);
  showSentences("wrong", [
    ...tellRise(progress.rise),
    ...tellContradicting(contradicting),
    ...tellCuts(status.cut_vertices, members),
    ...tellRemovals(status.roster),
  ]);
  setText(byId("roster"), tellRoster(status.roster));
  setText(byId("step"), count(progress.step));
  setText(byId("steps"), count(progress.steps));
  byId("step").style.minWidth = `${count(progress.steps).length}ch`; // so that a digit more moves nothing
  setAttributes(byId("progress"), { value: share.toFixed(4) });
  const epoch = progress.epoch === null ? "" : ` · epoch ${count(progress.epoch)}`;
  setText(byId("progress-text"), `${percent(share)}${epoch} · up for ${duration(node.up_seconds)}`);
  showFigures(status, members);
  document.title = `${node.name}: ${word}, ${percent(share, 0)} · seedflood`;
}

/** Why it is not ready, or for what it waits. */
function tellReason({ is_ready: isReady, why_not_ready: why, blockers }) {
  if (!isReady && why) return capitalised(why) + (/[.!?]$/.test(why) ? "" : ".");
  const [oldest] = blockers.toSorted((a, b) => b.seconds - a.seconds);
  const isLong = oldest?.seconds >= STANDSTILL_SECONDS;
  return isLong ? `Has waited for ${duration(Math.floor(oldest.seconds))}: ${oldest.reason}.` : null;
}

function tellRise(rise) {
  if (!rise) return [];
  const now = rise.loss === null ? "is no finite number" : `has risen to ${figure(rise.loss)}`;
  const hasBest = rise.best_loss !== null;
  const best = hasBest ? `; its best was ${figure(rise.best_loss)} at step ${count(rise.best_step)}` : "";
  return [`The loss of the evaluation at step ${count(rise.step)} ${now}${best}.`];
}

function tellContradicting(members) {
  if (members.length === 0) return [];
  const called = names(members.map(({ condition, name }) => (condition === "self" ? "this host" : name)));
  return [`These contradict the others, and their updates do not count: ${called}.`];
}

/** Hosts that are the only way between others: if one of them lies, or just dies, a part of the swarm hears nothing. */
function tellCuts(cuts, members) {
  if (cuts.length === 0) return [];
  const found = members.filter(({ origin }) => cuts.includes(origin)).map(({ name }) => name);
  return [`Some hosts are linked through ${names(found)} alone, who could keep news from them: more [[peers]] help.`];
}

/** What is to be done about hosts that were removed. */
function tellRemovals(roster) {
  const { removals = [], contradicted = 0 } = roster ?? {};
  const named = (state) => names(removals.filter((one) => one.state === state).map(({ name }) => name));
  const sentences = [];
  if (named("frozen")) sentences.push(`Removed, and not cut off yet: ${named("frozen")} (seedflood roster remove --node).`);
  if (named("cut")) sentences.push(`Cut off, and updates that count still lack here: ${named("cut")}.`);
  if (contradicted > 0) sentences.push("A cut contradicts compacted epochs, which stand.");
  return sentences;
}

function tellRoster(roster) {
  if (!roster) return "Open run: whoever knows its settings may take part.";
  const refused = roster.refused ? `; ${count(roster.refused)} messages of others refused` : "";
  return `Closed run: ${count(roster.hosts)} hosts on roster ${count(roster.serial)}${refused}.`;
}

function showFigures({ figures, history, links, node, progress, state }, members) {
  const lasts = Object.entries(figures).map(([name, value]) => [name, [[null, value]]]); // they are of no step
  const [evaluated] = describeFigures({ ...history.figures, ...Object.fromEntries(lasts) });
  const [step, value] = evaluated?.points.at(-1) ?? [null, null];
  const atStep = (at) => (at === null ? "" : `at step ${count(at)}`);
  const up = links.filter((link) => link.state === "connected").length;
  const alive = members.filter((member) => member.isLive).length;
  const left = progress.steps_per_second === 0 ? "stands still" : duration(progress.seconds_left);
  showFacts("figures", [
    ["Loss", loss(progress.loss), atStep(progress.loss_step)],
    [evaluated?.title ?? "Evaluation", evaluated?.write(value) ?? UNKNOWN, atStep(step)],
    ["Speed", figure(progress.steps_per_second), "steps per second"],
    ["Time left", state === "finished" ? "done" : left],
    ["Spent so far", duration(progress.spent_seconds), `${bytes(progress.spent_bytes)} sent`],
    ["Links up", `${count(up)} of ${count(links.length)}`],
    ["Hosts alive", `${count(alive)} of ${count(Math.max(members.length, node.run.clients))}`],
  ]);
}

/** Says whether the page is up to date, and puts a banner over stale figures. */
export function showFreshness({ isStale, status, fault, seconds }) {
  document.body.classList.toggle("is-stale", isStale);
  byId("banner").hidden = !isStale;
  setText(byId("freshness"), isStale ? "stale" : status ? "live, every second" : "connecting");
  if (!isStale) return;
  const isOver = status?.state === "finished" || status?.state === "draining";
  const since = new Date(Date.now() - 1000 * seconds);
  setText(byId("banner-title"), isOver ? "This node has ended." : "This node cannot be reached.");
  setText(byId("banner-text"), `No answer since ${timeOfDay(since)}${fault ? ` (${fault})` : ""}; asking on.`);
  if (status) document.title = `${status.node.name}: ${isOver ? "ended" : "not reached"} · seedflood`;
}
