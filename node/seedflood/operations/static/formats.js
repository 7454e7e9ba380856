// How values are written. An unknown value is a dash, never a zero.

export const UNKNOWN = "–";

/** A node that waits for a shorter time than this counts as working. */
export const STANDSTILL_SECONDS = 3;

const MORE_DIGITS_MAX = 3;

const grouped = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const clock = new Intl.DateTimeFormat([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
const calendar = new Intl.DateTimeFormat([], { dateStyle: "medium", timeStyle: "medium" });

export const timeOfDay = (date) => clock.format(date);
export const dateAndTime = (date) => calendar.format(date);
export const count = (value) => (Number.isFinite(value) ? grouped.format(value) : UNKNOWN);
export const decimal = (value, digits) => (Number.isFinite(value) ? value.toFixed(digits) : UNKNOWN);
export const percent = (share, digits = 1) => (Number.isFinite(share) ? `${(100 * share).toFixed(digits)} %` : UNKNOWN);

/** "1 host", "2 hosts". */
export const plural = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;

export const capitalised = (words) => words.charAt(0).toUpperCase() + words.slice(1);

/** A name of the code for people: loss_of_all is "Loss of all". */
export const spell = (name) => capitalised(name.replaceAll("_", " "));

/** The first names, and how many more there are. */
export function names(list, most = 4) {
  const shown = list.slice(0, most).join(", ");
  return list.length > most ? `${shown} and ${list.length - most} more` : shown;
}

/** Three significant digits, as far as a few decimals allow; a perplexity may have 305 of them. more: further digits. */
export function figure(value, more = 0) {
  if (!Number.isFinite(value)) return UNKNOWN;
  const size = Math.abs(value);
  if (size >= 1e9 || (size > 0 && size < 0.001)) return value.toExponential(1 + more).replace("e+", "e");
  if (size >= 100 && more === 0) return grouped.format(value);
  return value.toFixed(more + (size >= 100 ? 0 : size >= 10 ? 1 : size >= 0.1 || size === 0 ? 2 : 3));
}

/** A loss in four decimals, unless it has grown out of all bounds. */
export function loss(value) {
  return Math.abs(value) < 1000 ? decimal(value, 4) : figure(value);
}

/** The labels of an axis, in as many digits as tell them apart. write: (value, how many digits more than usual). */
export function labels(values, write) {
  let made = [];
  for (let more = 0; more <= MORE_DIGITS_MAX; more += 1) {
    made = values.map((value) => write(value, more));
    if (new Set(made).size === made.length) break;
  }
  return made;
}

/** Decimal units, as network people count: 1 kB is 1,000 bytes. */
export function bytes(value) {
  if (!Number.isFinite(value)) return UNKNOWN;
  const units = ["B", "kB", "MB", "GB", "TB", "PB", "EB"];
  const power = units.findLastIndex((_, k) => k === 0 || value >= 999.5 * 1000 ** (k - 1));
  return `${Number((value / 1000 ** power).toPrecision(3))} ${units[power]}`;
}

/** The two largest units that matter. */
export function duration(seconds) {
  if (!Number.isFinite(seconds)) return UNKNOWN;
  if (seconds < 0.9995) return `${(1000 * seconds).toFixed(seconds < 0.00995 ? 1 : 0)} ms`;
  if (seconds < 59.5) return `${seconds.toFixed(seconds < 9.95 ? 1 : 0)} s`;
  const pairs = [
    [86400, "d", 3600, "h"],
    [3600, "h", 60, "min"],
    [60, "min", 1, "s"],
  ];
  const [large, word, small, smallWord] = pairs.find(([size, , less]) => Math.round(seconds / less) * less >= size);
  const whole = Math.round(seconds / small) * small;
  return `${count(Math.floor(whole / large))} ${word} ${(whole % large) / small} ${smallWord}`;
}

/** How figures of evaluations are written, by their names; others are plain numbers. floor, ceiling: of their axis. */
const EVALUATED = {
  accuracy: { write: percent, writeAxis: percent, floor: 0, ceiling: 1 },
  perplexity: { floor: 1 },
};

/** figures: {name: [[step, value]]}, as the status has them. The first of what comes back tells most. */
export function describeFigures(figures) {
  return Object.entries(figures).map(([name, points]) => {
    return { title: spell(name), points, write: figure, writeAxis: figure, ...EVALUATED[name] };
  });
}
