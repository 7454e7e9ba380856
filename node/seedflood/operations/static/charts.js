// Curves, drawn by uPlot (vendor/uplot). Each is in a <figure> whose caption says its latest value in words.

import { make, setText } from "./elements.js";
import { labels } from "./formats.js";

const { uPlot } = globalThis;

/** How many points a curve is smoothed over: this share of its points, and at least this many. */
const SMOOTHING_SHARE = 0.05;
const SMOOTHING_POINTS_MIN = 5;

const STEP_INCREMENTS = [1, 2, 5]
  .flatMap((k) => Array.from({ length: 9 }, (_, e) => k * 10 ** e))
  .sort((a, b) => a - b);

export class Chart {
  #plot = null;
  #place;
  #readout;
  #empty;
  #options;
  #data = null;
  #marks = [];
  #range = null;

  /**
   * figure: the id of the <figure>. options:
   *   describe(x, y, smooth, also): the caption's words for one point; also: the values of the curves beside
   *   write(y, more): a label of the y axis; more: how many digits it has beside the usual ones
   *   writeX(x): a label of the x axis; isSmoothed: whether a mean is drawn over the points; isStepped: x are steps
   *   empty: what is said while there is nothing to draw; floor, ceiling: limits of the y axis
   *   also: {colour, isDots} of each curve that may be drawn beside
   */
  constructor(figure, options) {
    const element = document.getElementById(figure);
    this.#place = element.querySelector(".plot");
    this.#readout = element.querySelector(".readout");
    this.#options = options;
    this.#empty = make("p", { class: "empty" }, options.empty);
    this.#place.append(this.#empty);
    new ResizeObserver(() => this.#fit()).observe(this.#place);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#redraw());
  }

  /**
   * points: [x, y] in rising x. range: first and last x to show, or null for those of the points. also: the points of
   * each curve beside. marks: the x of upright lines.
   */
  show(points, range = null, also = [], marks = []) {
    const known = points.filter(([, y]) => Number.isFinite(y));
    const x = known.map((point) => point[0]);
    const y = known.map((point) => point[1]);
    this.#data = this.#options.isSmoothed ? [x, y, means(y)] : [x, y];
    if (also.length > 0) this.#data = uPlot.join([this.#data, ...also.map((one) => [one.map(([at]) => at), one.map(([, value]) => value)])]);
    this.#marks = marks;
    this.#range = range;
    this.#empty.hidden = known.length > 0;
    if (known.length === 0) {
      this.#plot?.destroy();
      this.#plot = null;
    } else if (this.#plot) this.#plot.setData(this.#data);
    else this.#draw();
    this.#tell();
  }

  #redraw() {
    this.#plot?.destroy();
    this.#plot = null;
    if (this.#data?.[0].length) this.#draw();
  }

  #fit() {
    const { clientWidth: width, clientHeight: height } = this.#place;
    if (this.#plot && width > 0) this.#plot.setSize({ width, height });
  }

  #tell() {
    if (!this.#data) return;
    const [x, y, ...others] = this.#data;
    const pointed = this.#plot?.cursor.idx ?? null;
    const index = pointed ?? y.findLastIndex(Number.isFinite);
    const values = others.map((one) => (pointed === null ? one.findLast(Number.isFinite) : one[index]));
    const smooth = this.#options.isSmoothed ? values.shift() : undefined;
    setText(this.#readout, index < 0 ? "\u00a0" : this.#options.describe(x[index], y[index], smooth, values));
  }

  #draw() {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(`--${name}`).trim();
    const { write, writeX, isSmoothed, isStepped, floor = null, ceiling = null, also = [] } = this.#options;
    const axis = {
      stroke: colour("muted"),
      font: `12px ${style.getPropertyValue("--font").trim()}`,
      grid: { stroke: colour("grid"), width: 1 },
      ticks: { show: false },
    };
    const line = { stroke: colour("accent"), width: 2, spanGaps: true, points: { show: false } };
    const faint = { stroke: colour("faint"), width: 1, spanGaps: true, points: { show: false } };
    const dots = { size: 5, fill: colour("accent"), stroke: colour("accent") };
    const few = { ...line, points: { ...dots, show: () => this.#data[0].length <= 60 } };
    const beside = also.map(({ colour: name, isDots }) => ({
      stroke: isDots ? null : colour(name),
      width: isDots ? 0 : 1.5,
      spanGaps: true,
      points: { show: isDots, size: 6, fill: colour(name), stroke: colour(name) },
    }));
    this.#plot = new uPlot(
      {
        width: this.#place.clientWidth,
        height: this.#place.clientHeight,
        legend: { show: false },
        cursor: { y: false, drag: { x: false, y: false }, points: { size: 7 } },
        padding: [10, 14, 0, 0],
        scales: {
          x: {
            time: false,
            range: (_, least, most) => this.#range ?? (least === most ? [least - 1, most + 1] : [least, most]),
          },
          y: { range: (_, least, most) => padded(least, most, floor, ceiling) },
        },
        axes: [
          {
            ...axis,
            size: 26,
            gap: 6,
            space: isStepped ? 50 : 90,
            values: (_, at) => at.map(writeX),
            ...(isStepped && { incrs: STEP_INCREMENTS }),
          },
          { ...axis, size: 48, gap: 6, space: 24, values: (_, at) => labels(at, write) },
        ],
        series: [{}, ...(isSmoothed ? [faint, line] : [few]), ...beside],
        hooks: { setCursor: [() => this.#tell()], draw: [(plot) => this.#mark(plot, colour("bad"))] },
      },
      this.#data,
      this.#place,
    );
  }

  #mark(plot, colour) {
    const { ctx: context, bbox: box } = plot;
    context.save();
    context.strokeStyle = colour;
    context.lineWidth = 2 * devicePixelRatio;
    context.setLineDash([4 * devicePixelRatio, 3 * devicePixelRatio]);
    for (const mark of this.#marks) {
      const at = plot.valToPos(mark, "x", true);
      if (at < box.left || at > box.left + box.width) continue;
      context.beginPath();
      context.moveTo(at, box.top);
      context.lineTo(at, box.top + box.height);
      context.stroke();
    }
    context.restore();
  }
}

/** The mean of each value and those right before it. */
function means(values) {
  const span = Math.max(SMOOTHING_POINTS_MIN, Math.round(values.length * SMOOTHING_SHARE));
  let sum = 0;
  return values.map((value, index) => {
    sum += value;
    if (index >= span) sum -= values[index - span];
    return sum / Math.min(index + 1, span);
  });
}

function padded(least, most, floor, ceiling) {
  const pad = Math.max((most - least) * 0.08, Math.abs(most) * 0.02, 1e-6);
  return [Math.max(least - pad, floor ?? -Infinity), Math.min(most + pad, ceiling ?? Infinity)];
}
