// The page of one node: asks for its status every second and shows it, from what matters most to what matters least.

import { showAlgorithm } from "./algorithm.js";
import { Chart } from "./charts.js";
import { byId, setText } from "./elements.js";
import { describeFigures } from "./figures.js";
import { count, figure, loss, timeOfDay } from "./formats.js";
import { showFreshness } from "./freshness.js";
import { Graph } from "./graph.js";
import { showHeadline } from "./headline.js";
import { describeMembers } from "./members.js";
import { Model } from "./model.js";
import { showColophon, showDelays, showTraffic, showUpdates, showWindow } from "./panels.js";
import { showEvents, showLinks, showMembers } from "./tables.js";

/** all: of all hosts; evaluated: on the validation rows. */
function describeLoss(step, own, mean, [all, evaluated] = []) {
  const known = [
    ["here", own],
    ["mean", mean],
    ["all hosts", all],
    ["evaluated", evaluated],
  ].filter(([, value]) => Number.isFinite(value));
  return `Step ${count(step)}: ${known.map(([name, value]) => `${name} ${loss(value)}`).join(", ")}`;
}

const lossChart = new Chart("chart-loss", {
  isStepped: true,
  isSmoothed: true,
  write: figure,
  writeX: count,
  also: [{ colour: "warn" }, { colour: "text", isDots: true }],
  describe: describeLoss,
  empty: "No loss yet: no step was measured here.",
});
let figures = [];
const evaluated = new Chart("chart-evaluated", {
  isStepped: true,
  write: (value, more) => figures[0].writeAxis(value, more),
  writeX: count,
  describe: (step, value) => `${figures[0].write(value)} at step ${count(step)}`,
  empty: "No evaluation yet. By default there are some twenty in a run, if they do not take too long ([node] evaluate_every).",
  get floor() {
    return figures[0].floor;
  },
  get ceiling() {
    return figures[0].ceiling;
  },
});
const speed = new Chart("chart-speed", {
  write: figure,
  writeX: (seconds) => timeOfDay(new Date(1000 * seconds)),
  describe: (seconds, value) => `${figure(value)} at ${timeOfDay(new Date(1000 * seconds))}`,
  empty: "No step is done yet.",
  floor: 0,
});
const graph = new Graph();

function showCurves({ history, progress }) {
  figures = describeFigures(history.figures);
  const points = figures[0]?.points ?? [];
  const firsts = [history.loss[0], points[0]].filter(Boolean).map(([step]) => step);
  const first = firsts.length > 0 ? Math.min(...firsts) : 0;
  const steps = [first, Math.max(progress.step ?? 0, first + 1)];
  const halved = history.halvings.map(([step]) => step);
  lossChart.show(history.loss, steps, [history.loss_of_all, history.figures.loss ?? []], halved);
  setText(byId("chart-evaluated-title"), figures[0]?.title ?? "Evaluation");
  evaluated.show(points, steps);
  speed.show(history.steps_per_second);
}

let shown = null;

function showHosts(status, members) {
  showMembers(status, members, (origin) => graph.point(origin));
}

function show(model) {
  const { status } = model;
  if (status !== null && status !== shown) {
    shown = status;
    const members = describeMembers(status);
    showAlgorithm(status);
    showHeadline(status, members);
    showCurves(status);
    graph.show(members, status.edges, status.pairs);
    showWindow(status);
    showUpdates(status);
    showDelays(status);
    showHosts(status, members);
    showTraffic(status);
    showLinks(status);
    showEvents(status);
    showColophon(status);
  }
  showFreshness(model);
}

byId("members-search").addEventListener("input", () => shown && showHosts(shown, describeMembers(shown)));
byId("events-level").addEventListener("change", () => shown && showEvents(shown));
new Model("api/status", show).start();
