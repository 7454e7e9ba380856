// The page of one node: asks for its status every second and shows it, from what matters most to what matters least.

import { Chart } from "./charts.js";
import { byId } from "./elements.js";
import { count, decimal, figure, percent, timeOfDay } from "./formats.js";
import { showFreshness } from "./freshness.js";
import { Graph } from "./graph.js";
import { showHeadline } from "./headline.js";
import { describeMembers } from "./members.js";
import { Model } from "./model.js";
import { showColophon, showDelays, showTraffic, showUpdates, showWindow } from "./panels.js";
import { showEvents, showLinks, showMembers } from "./tables.js";

const loss = new Chart("chart-loss", {
  isStepped: true,
  isSmoothed: true,
  write: (value) => figure(value),
  writeX: count,
  describe: (step, value, mean) => `${decimal(value, 4)} at step ${count(step)}, mean ${decimal(mean, 4)}`,
  empty: "No loss yet: no step was measured here.",
});
const accuracy = new Chart("chart-accuracy", {
  isStepped: true,
  write: (value) => percent(value, 0),
  writeX: count,
  describe: (step, value) => `${percent(value)} at step ${count(step)}`,
  empty: "No evaluation yet. evaluate and evaluate_every in peers.toml say when there is one.",
  floor: 0,
  ceiling: 1,
});
const speed = new Chart("chart-speed", {
  write: (value) => figure(value),
  writeX: (seconds) => timeOfDay(new Date(1000 * seconds)),
  describe: (seconds, value) => `${figure(value)} at ${timeOfDay(new Date(1000 * seconds))}`,
  empty: "No step is done yet.",
  floor: 0,
});
const graph = new Graph();

function showCurves({ history, progress }) {
  const firsts = [history.loss[0], history.accuracy[0]].filter(Boolean).map(([step]) => step);
  const first = firsts.length > 0 ? Math.min(...firsts) : 0;
  const steps = [first, Math.max(progress.step ?? 0, first + 1)];
  loss.show(history.loss, steps);
  accuracy.show(history.accuracy, steps);
  speed.show(history.steps_per_second);
}

let shown = null;

function show(model) {
  const { status } = model;
  if (status !== null && status !== shown) {
    shown = status;
    const members = describeMembers(status);
    showHeadline(status, members);
    showCurves(status);
    graph.show(members, status.edges);
    showWindow(status);
    showUpdates(status);
    showDelays(status);
    showMembers(status, members, (origin) => graph.point(origin));
    showTraffic(status);
    showLinks(status);
    showEvents(status);
    showColophon(status);
  }
  showFreshness(model);
}

byId("events-level").addEventListener("change", () => shown && showEvents(shown));
new Model("api/status", show).start();
