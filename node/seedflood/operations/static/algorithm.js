// What the algorithm of the run has, and the figures that it shows of itself. What it has not is not shown.

import { byId, make, makeSvg, reconcile, setAttribute, setText } from "./elements.js";
import { bytes, count, duration, figure, percent } from "./formats.js";

const SPARK = { width: 100, height: 20, margin: 2 };

/** How a figure is written, by what its name ends or begins with. */
const WRITERS = [
  [/_seconds$/, duration],
  [/^bytes_per_/, (value) => (value === null ? figure(value) : `${figure(value)} B`)],
  [/^bytes_/, bytes],
  [/_distance$/, (value) => percent(value, 2)],
  [/tokens|halvings$|^round$|^exchanges|equal_replicas$|^slow_links$/, count],
];

/** What a model wrote: of any length up to a bound, in a place that stays as high as it is. */
const isText = (name) => name.endsWith("_text");

function write(name, value) {
  const [, spell] = WRITERS.find(([pattern]) => pattern.test(name)) ?? [null, figure];
  return spell(value);
}

/** A node that loads shows all places, empty: only a running one knows what its algorithm has not. */
export function describeAlgorithm({ node, updates }) {
  const isLoaded = node.incarnation !== null;
  return { hasWindows: node.run.window !== null, hasUpdates: !isLoaded || updates.originated !== null };
}

export function showAlgorithm(status) {
  const { hasWindows, hasUpdates } = describeAlgorithm(status);
  for (const element of document.querySelectorAll("[data-needs='windows']")) element.hidden = !hasWindows;
  for (const element of document.querySelectorAll("[data-needs='updates']")) element.hidden = !hasUpdates;
  byId("members").classList.toggle("is-plain", !hasUpdates);
  setText(byId("coverage-title"), hasUpdates ? "Flood" : "Hosts");
  const exchanging = status.pairs.length > 0 ? " Along thick lines this node exchanges parameters." : "";
  setText(byId("network-hint"), `Who is linked with whom, as all hosts state it.${exchanging}${warnOfCuts(status)}`);
  setText(byId("updates-title"), hasUpdates ? "Updates" : "From others");
  showFigures(status);
}

/** Hosts that are the only way between others: if one of them lies, or just dies, a part of the swarm hears nothing. */
function warnOfCuts({ cut_vertices: cuts, members }) {
  if (!cuts?.length) return "";
  const names = cuts.map((origin) => members.find((member) => member.origin === origin)?.name ?? origin);
  const shown = names.length > 3 ? `${names.slice(0, 3).join(", ")} and ${names.length - 3} more` : names.join(", ");
  return ` Some hosts are linked through ${shown} alone, who could keep news from them: more [[peers]] help.`;
}

function showFigures({ figures, words, history }) {
  const told = Object.keys(words);
  const names = [...told.filter((name) => !isText(name)), ...Object.keys(figures), ...told.filter(isText)];
  byId("algorithm").hidden = names.length === 0;
  reconcile(byId("algorithm-figures").tBodies[0], names, {
    key: (name) => name,
    create: (name) =>
      make(
        "tr",
        {},
        make("th", { scope: "row", title: name }, name.replaceAll("_", " ")),
        ...(isText(name)
          ? [make("td", { colspan: 2 }, make("div", { class: "sample", tabindex: 0 }))]
          : [make("td", {}, makeSpark()), make("td", { class: "number" })]),
      ),
    update: (row, name) => {
      if (isText(name)) return setText(row.lastElementChild.firstElementChild, words[name]);
      const [, spark, value] = row.children;
      setAttribute(spark.firstElementChild.firstElementChild, "points", outline(history.algorithm[name] ?? []));
      setText(value, name in words ? words[name] : write(name, figures[name]));
      setAttribute(value, "title", words[name] ?? "");
    },
  });
}

function makeSpark() {
  const { width, height } = SPARK;
  return makeSvg(
    "svg",
    { class: "spark", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", "aria-hidden": "true" },
    makeSvg("polyline"),
  );
}

/** Corners of a line through the points, as wide and as high as its place. */
function outline(points) {
  if (points.length < 2) return "";
  const [left, right] = [points[0][0], points.at(-1)[0]];
  const values = points.map(([, value]) => value);
  const [least, most] = [Math.min(...values), Math.max(...values)];
  const { width, height, margin } = SPARK;
  const across = (at) => (width * (at - left)) / Math.max(right - left, 1e-9);
  const down = (value) =>
    least === most ? height / 2 : height - margin - ((height - 2 * margin) * (value - least)) / (most - least);
  return points.map(([at, value]) => `${across(at).toFixed(1)},${down(value).toFixed(1)}`).join(" ");
}
