// The page of one node: asks for its status every second and shows it, from what matters most to what matters least.

import { Chart, means } from "./charts.js";
import { byId } from "./elements.js";
import { count, describeFigures, figure, loss, timeOfDay } from "./formats.js";
import { showFreshness, showHeadline } from "./headline.js";
import { describeMembers, showHosts } from "./hosts.js";
import { watch } from "./model.js";
import { showAlgorithm, showColophon, showEvents, showLinks, showTraffic, showWindow } from "./panels.js";

const LOSS_NOTE =
  "Pale: here; green: its mean; brown: all hosts; dots: evaluated; dashed: the rate was halved, or is too high.";

const lossChart = new Chart("chart-loss", "Loss", "No loss yet: no step was measured here.", [
  { word: "here", colour: "faint", width: 1 },
  { word: "mean", colour: "accent", width: 2 },
  { word: "all hosts", colour: "warn", width: 1.5 },
  { word: "evaluated", colour: "text", width: 0, hasDots: true },
]);
const evaluationChart = new Chart("chart-evaluated", "Evaluation", "No evaluation yet ([node] evaluate_every).", [
  { word: "", colour: "accent", width: 2, hasDots: true },
]);
const speedChart = new Chart("chart-speed", "Steps per second", "No step is done yet.", [
  { word: "", colour: "accent", width: 2 },
]);

function showCurves({ history, progress }) {
  const [evaluated = { points: [] }] = describeFigures(history.figures);
  const first = Math.min(history.loss[0]?.[0] ?? Infinity, evaluated.points[0]?.[0] ?? Infinity, progress.step ?? 0);
  const steps = {
    isStepped: true,
    writeX: (step) => `Step ${count(step)}`,
    writeAxisX: count,
    range: [first, Math.max(progress.step ?? 0, first + 1)],
  };
  lossChart.show([history.loss, means(history.loss), history.loss_of_all, history.figures.loss ?? []], {
    ...steps,
    marks: history.halvings.map(([step]) => step),
    note: history.loss_of_all.length > 0 ? LOSS_NOTE : "",
    write: loss,
  });
  evaluationChart.show([evaluated.points], { ...steps, ...evaluated });
  const writeX = (seconds) => timeOfDay(new Date(1000 * seconds));
  speedChart.show([history.steps_per_second], { floor: 0, writeX, writeAxisX: writeX });
}

let shown = null;

function showAll(status) {
  shown = status;
  const members = describeMembers(status);
  showHeadline(status, members);
  showCurves(status);
  showHosts(status, members);
  showWindow(status);
  showAlgorithm(status);
  showTraffic(status);
  showLinks(status);
  showEvents(status);
  showColophon(status);
}

byId("members-search").addEventListener("input", () => shown && showAll(shown));
byId("events-narrowed").addEventListener("change", () => shown && showAll(shown));
watch("api/status", (model) => {
  if (model.status !== null && model.status !== shown) showAll(model.status);
  showFreshness(model);
});
