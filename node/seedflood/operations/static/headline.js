// The top of the page: which node this is, its state, and how far the run is.

import { byId, setAttribute, setText } from "./elements.js";
import { describeFigures } from "./figures.js";
import { STANDSTILL_SECONDS, UNKNOWN, age, bytes, capitalised, count, duration, figure, loss, names, percent } from "./formats.js";
import { isLive } from "./members.js";

/** What a state means for someone who has never seen this page. tone: its colour; shape: its mark. */
const STATES = {
  loading: { tone: "busy", shape: "busy", text: "Reads the model and its data." },
  joining: { tone: "busy", shape: "busy", text: "Looks for a neighbour that says how far the run is." },
  "catching up": { tone: "busy", shape: "busy", text: "Pulls what it has missed; measures nothing yet." },
  ready: { tone: "good", shape: "good", text: "Takes part." },
  "stands still": { tone: "bad", shape: "fault", text: "Has waited for minutes without a step." },
  draining: { tone: "busy", shape: "busy", text: "Leaves the run: publishes nothing more." },
  finished: { tone: "good", shape: "good", text: "The run is over; nothing is missing." },
  doubted: { tone: "bad", shape: "fault", text: "Its data was found to differ from that of others." },
  "disk full": {
    tone: "bad",
    shape: "fault",
    text: "Publishes nothing, but relays what others say; goes on when there is space.",
  },
  "out of time": {
    tone: "bad",
    shape: "fault",
    text: "By its clock it may not take part now, and the clock may be wrong; waits.",
  },
};

/** What they mean in one mode of training. */
const TEXTS = {
  seedflood: {
    ready: "Takes part; its replica agrees with those of its neighbours.",
    doubted: "Its replica differs from a neighbour's, and is made again from the journal.",
  },
  gasloc: {
    ready: "Takes part: local steps, then an exchange of parameters with neighbours.",
  },
};

export function showHeadline(status, members) {
  const { node, progress, state } = status;
  const { rise } = progress;
  const contradicting = members.filter((member) => member.contradicts);
  const isOurs = contradicting.some((member) => member.condition === "self");
  const trouble = rise ? "unlearns" : isOurs ? "contradicts the others" : null;
  const known = { tone: "busy", shape: "busy", text: "", ...STATES[state], ...(trouble && { tone: "bad", shape: "fault" }) };
  const text = TEXTS[node.run.mode]?.[state] ?? known.text;
  const word = trouble ? `${state}, but ${trouble}` : state;
  setText(byId("node-name"), node.name);
  setAttribute(byId("state"), "data-tone", known.tone);
  setAttribute(byId("state-shape"), "href", `#shape-${known.shape}`);
  setText(byId("state-text"), word);
  setText(byId("state-reason"), reason(status, text));
  byId("rise").hidden = !rise;
  setText(byId("rise"), spellRise(rise));
  byId("contradicting").hidden = contradicting.length === 0;
  setText(byId("contradicting"), spellContradicting(contradicting));

  setText(byId("roster"), belonging(status.roster));

  const share = progress.steps ? Math.min(1, (progress.step ?? 0) / progress.steps) : 0;
  setText(byId("step"), count(progress.step));
  setText(byId("steps"), count(progress.steps));
  byId("step").style.minWidth = `${count(progress.steps).length}ch`; // room for the last one, so that nothing moves
  setAttribute(byId("progress"), "value", share.toFixed(4));
  const epoch = progress.epoch === null ? "" : ` · epoch ${count(progress.epoch)}`;
  setText(byId("progress-text"), `${percent(share)}${epoch} · up for ${duration(node.up_seconds)}`);

  setText(byId("figure-spent"), spent(progress));

  const [evaluated] = describeFigures({ ...status.history.figures, ...lastOf(status.figures) });
  const [evaluatedStep, value] = evaluated?.points.at(-1) ?? [null, null];
  setText(byId("figure-loss"), loss(progress.loss));
  setText(byId("figure-loss-step"), atStep(progress.loss_step));
  setText(byId("figure-evaluated-name"), evaluated ? evaluated.title : "Evaluation");
  setText(byId("figure-evaluated"), evaluated ? evaluated.write(value) : UNKNOWN);
  setText(byId("figure-evaluated-step"), atStep(evaluatedStep));
  setText(byId("figure-speed"), figure(progress.steps_per_second));
  setText(byId("figure-left"), left(status));
  const connected = status.links.filter((link) => link.state === "connected").length;
  setText(byId("figure-links"), `${connected} of ${status.links.length}`);
  const alive = members.filter((member) => isLive(member.condition)).length;
  setText(byId("figure-alive"), `${alive} of ${Math.max(members.length, node.run.clients)}`);

  setText(byId("run"), `Run ${node.run.name} · ${node.run.id.slice(0, 12)}`);
  document.title = `${node.name}: ${word}, ${percent(share, 0)} · seedflood`;
}

/** Who may take part. */
function belonging(roster) {
  if (!roster) return "Open run: whoever knows its settings may take part.";
  const refused = roster.refused ? `; ${count(roster.refused)} messages of others refused` : "";
  return `Closed run: ${count(roster.hosts)} hosts on roster ${count(roster.serial)}${refused}.${removals(roster)}`;
}

/** What is to be done about hosts that were removed. */
function removals(roster) {
  const named = (state) => roster.removals.filter((one) => one.state === state).map((one) => one.name).join(", ");
  const frozen = named("frozen");
  const cut = named("cut");
  const stands = roster.contradicted ? " A cut contradicts compacted epochs, which stand." : "";
  return (
    (frozen ? ` Removed, and not cut off yet: ${frozen} (seedflood roster cut).` : "") +
    (cut ? ` Cut off, and updates that count still lack here: ${cut}.` : "") +
    stands
  );
}

/** Figures of the algorithm as curves of one point: they stand here if nothing was evaluated. They are of no step. */
function lastOf(figures) {
  return Object.fromEntries(Object.entries(figures).map(([name, value]) => [name, [[null, value]]]));
}

function atStep(step) {
  return step === null ? "\u00a0" : `at step ${count(step)}`;
}

/** Why the run does more harm than good. */
function spellRise(rise) {
  if (!rise) return "";
  const now = rise.loss === null ? "is no finite number" : `has risen to ${figure(rise.loss)}`;
  const best = rise.best_loss === null ? "" : `; its best was ${figure(rise.best_loss)} at step ${count(rise.best_step)}`;
  return `The loss of the evaluation at step ${count(rise.step)} ${now}${best}.`;
}

/** Whose updates do not count. */
function spellContradicting(members) {
  const called = members.map((member) => (member.condition === "self" ? "This host" : member.name)); // it is the first
  if (members.length === 1) return `${called[0]} contradicts the others: its updates do not count.`;
  return `${names(called)} contradict the others: their updates do not count.`;
}

function left({ state, progress }) {
  if (state === "finished") return "done";
  return progress.steps_per_second === 0 ? "stands still" : duration(progress.seconds_left);
}

/** What the present loss has cost so far. */
function spent({ spent_seconds: seconds, spent_bytes: sent }) {
  return seconds === null ? UNKNOWN : `${duration(seconds)}, ${bytes(sent)} sent`;
}

function reason(status, text) {
  if (!status.is_ready && status.why_not_ready) {
    const words = status.why_not_ready;
    return capitalised(words) + (/[.!?]$/.test(words) ? "" : ".");
  }
  const [oldest] = status.blockers.toSorted((a, b) => b.seconds - a.seconds);
  if (oldest?.seconds >= STANDSTILL_SECONDS) return `Has waited for ${age(oldest.seconds)}: ${oldest.reason}.`;
  return text;
}
