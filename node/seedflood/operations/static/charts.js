// Curves, drawn by uPlot (vendor/uplot). Each chart is a <figure> whose caption says the latest values in words.

import { byId, make, setText } from "./elements.js";
import { figure, labels } from "./formats.js";

const { uPlot } = globalThis;

/** A mean is of this share of a curve's points, and of this many at least. */
const MEAN_SHARE = 0.05;
const MEAN_POINTS_MIN = 5;

const STEP_INCREMENTS = Array.from({ length: 27 }, (_, k) => [1, 2, 5][k % 3] * 10 ** Math.floor(k / 3));

const DEFAULTS = {
  range: null,
  floor: -Infinity,
  ceiling: Infinity,
  isStepped: false,
  marks: [],
  note: "",
  write: figure,
  writeAxis: figure,
};

export class Chart {
  #curves;
  #data = [[]];
  #empty;
  #look = DEFAULTS;
  #note = make("p", { class: "hint" });
  #place = make("div", { class: "plot" });
  #plot = null;
  #readout = make("p", { class: "hint readout" });
  #title;

  /** id: of the <figure>. empty: what is said while there is nothing to draw. curves: { word, colour, width, hasDots }. */
  constructor(id, title, empty, curves) {
    this.#curves = curves;
    this.#empty = make("p", { class: "empty" }, empty);
    this.#title = make("h2", { id: `${id}-title` }, title);
    this.#place.append(this.#empty);
    byId(id).setAttribute("aria-labelledby", `${id}-title`);
    byId(id).append(make("figcaption", {}, this.#title, this.#readout), this.#place, this.#note);
    new ResizeObserver(() => this.#redraw()).observe(this.#place);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#redraw());
  }

  /**
   * points: of each curve, as [[x, y]] in rising x. look: range: first and last x, if they are not those of the points;
   * floor, ceiling: of the y axis; write(y), writeX(x): for the caption; writeAxis(y, more), writeAxisX(x): for the
   * axes, in so many digits more than usual; isStepped: are x steps?; marks: the x of upright lines; title, note.
   */
  show(points, look) {
    const known = points.map((curve) => curve.filter(([, y]) => Number.isFinite(y)));
    this.#data = uPlot.join(known.map((curve) => [curve.map(([x]) => x), curve.map(([, y]) => y)]));
    this.#look = { ...DEFAULTS, ...look };
    if (look.title) setText(this.#title, look.title);
    setText(this.#note, this.#look.note);
    this.#empty.hidden = this.#data[0].length > 0;
    if (this.#plot && this.#empty.hidden) this.#plot.setData(this.#data);
    else this.#redraw();
    this.#tell();
  }

  #redraw() {
    this.#plot?.destroy();
    const canBeSeen = this.#data[0].length > 0 && this.#place.clientWidth > 0;
    this.#plot = canBeSeen ? new uPlot(this.#describe(), this.#data, this.#place) : null;
  }

  /** Says what each curve is at the pointer, else its last value. */
  #tell() {
    const [xs, ...curves] = this.#data;
    const pointed = this.#plot?.cursor.idx ?? null;
    const at = pointed ?? curves[0].findLastIndex(Number.isFinite);
    const words = curves.map((ys, k) => {
      const y = pointed === null ? ys.findLast(Number.isFinite) : ys[pointed];
      return Number.isFinite(y) ? `${this.#curves[k].word} ${this.#look.write(y)}`.trim() : null;
    });
    const known = words.filter((word) => word !== null).join(", ");
    setText(this.#readout, known && at >= 0 ? `${this.#look.writeX(xs[at])}: ${known}` : "");
  }

  #describe() {
    const style = getComputedStyle(this.#place);
    const colour = (name) => {
      this.#place.style.color = `var(--${name})`; // a canvas knows no light-dark(): the browser has to choose
      return style.color;
    };
    const axis = {
      stroke: colour("muted"),
      font: `12px ${style.fontFamily}`,
      grid: { stroke: colour("line"), width: 1 },
      ticks: { show: false },
    };
    const across = { ...axis, size: 30, space: 90, values: (_, at) => at.map(this.#look.writeAxisX) };
    if (this.#look.isStepped) Object.assign(across, { space: 50, incrs: STEP_INCREMENTS });
    const upright = { ...axis, size: 52, space: 24, values: (_, at) => labels(at, this.#look.writeAxis) };
    const series = this.#curves.map(({ colour: name, width, hasDots = false }) => ({
      stroke: width > 0 ? colour(name) : null,
      width,
      spanGaps: true,
      points: { show: hasDots, size: 6, fill: colour(name), stroke: colour(name) },
    }));
    const markColour = colour("bad");
    return {
      width: this.#place.clientWidth,
      height: this.#place.clientHeight,
      legend: { show: false },
      cursor: { y: false, drag: { x: false, y: false }, points: { size: 7 } },
      padding: [10, 14, 0, 0],
      scales: {
        x: { time: false, range: (_, least, most) => this.#look.range ?? [least, Math.max(most, least + 1)] },
        y: { range: (_, least, most) => padded(least, most, this.#look) },
      },
      axes: [across, upright],
      series: [{}, ...series],
      hooks: { setCursor: [() => this.#tell()], draw: [(plot) => drawMarks(plot, this.#look.marks, markColour)] },
    };
  }
}

function drawMarks({ ctx: context, bbox: box, valToPos: locate }, marks, colour) {
  context.save();
  context.fillStyle = colour;
  for (const mark of marks) {
    const at = locate(mark, "x", true);
    if (at < box.left || at > box.left + box.width) continue;
    for (let y = 0; y < box.height; y += 8) context.fillRect(at - 1, box.top + y, 2, 4);
  }
  context.restore();
}

/** points: [[x, y]]. The mean of each y and those right before it. */
export function means(points) {
  const span = Math.max(MEAN_POINTS_MIN, Math.round(points.length * MEAN_SHARE));
  let sum = 0;
  return points.map(([x, y], index) => {
    sum += y;
    if (index >= span) sum -= points[index - span][1];
    return [x, sum / Math.min(index + 1, span)];
  });
}

function padded(least, most, { floor, ceiling }) {
  const pad = Math.max((most - least) * 0.08, Math.abs(most) * 0.02, 1e-6);
  return [Math.max(least - pad, floor), Math.min(most + pad, ceiling)];
}
