// Drawing: rows of lanes from left to right, slices narrower than a pixel together, one rectangle per run of pixels.
"use strict";

const ROW = 17, SLICE = 13, HEAD = 20, AXIS = 24, CHAR = 6.3; // pixels
const LEVELS = 5; // of how full a pixel is

// Which words are drawn in which colors, by column of nodes.
const COLORS = {
  look: { host: "host", compute: "compute", copy: "memory", transfer: "transfer", wait: "wait", exit: "exit" },
  source: { measured: "green", trace: "exit", gnn: "blue", gnn_calibrated: "sky", analytic: "amber", declared: "pink", uncovered: "red" },
  phase: { forward: "blue", backward: "amber", optimizer: "green", other: "grey" },
  bound: { compute: "blue", memory: "green", launch: "pink" },
};

function withAlpha(rgb, alpha) {
  return rgb.replace(/^rgb\((.*)\)$/, `rgba($1, ${alpha})`);
}

function textOn(rgb) {
  const [r, g, b] = rgb.match(/[\d.]+/g).map(Number);
  return 0.299 * r + 0.587 * g + 0.114 * b > 140 ? "#000" : "#fff";
}

// Colors of each word of a column: [level][word], the last level is opaque; and of text on it.
function paletteOf(column, words) {
  const base = words.map((word) => colorOf(COLORS[column][word] ?? "grey"));
  const alphas = Array.from({ length: LEVELS }, (_, n) => (0.35 + (0.65 * n) / (LEVELS - 1)).toFixed(2));
  return { levels: alphas.map((alpha) => base.map((rgb) => withAlpha(rgb, alpha))), text: base.map(textOn), solid: base };
}

// Where rows are: a head per rank, then its lanes.
function layoutOf(lanes, measuredToo) {
  const rows = [];
  let y = AXIS, rank = null;
  for (const lane of lanes) {
    if (lane.kind === "measured" && !measuredToo) continue;
    if (lane.rank !== rank) {
      rank = lane.rank;
      rows.push({ y, height: HEAD, head: `rank ${rank}` });
      y += HEAD;
    }
    rows.push({ y, height: ROW, lane });
    y += ROW;
  }
  return { rows, height: y + 4 };
}

// First slice of a lane that ends after `tick`; slices of a lane follow each other, so their ends ascend.
function firstVisible({ start, length }, lane, tick) {
  let low = lane.first, high = lane.end;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (start[middle] + length[middle] > tick) high = middle;
    else low = middle + 1;
  }
  return low;
}

// All slices of one lane between `from` and `to` (ticks), at `y`.
function drawLane(context, data, lane, place, style) {
  const { start, length, node, name } = data.slices;
  const { from, to, left, scale, y } = place;
  const { code, palette } = style;
  const critical = lane.kind === "predicted" ? data.nodes.critical_us : undefined;
  const cover = new Float32Array(palette.solid.length);
  const run = { x: 0, width: 0, color: "" }, path = [];
  let pixel = -1, filled = 0, isCritical = false;
  const flushRun = () => {
    if (run.width) { context.fillStyle = run.color; context.fillRect(run.x, y, run.width, SLICE); }
    run.width = 0;
  };
  const flushPixel = () => {
    if (pixel < 0) return;
    let most = 0;
    for (let c = 1; c < cover.length; c++) if (cover[c] > cover[most]) most = c;
    const color = palette.levels[Math.max(0, Math.min(LEVELS - 1, Math.ceil(filled * LEVELS) - 1))][most];
    if (run.width && run.color === color && run.x + run.width === pixel) run.width++;
    else { flushRun(); run.x = pixel; run.width = 1; run.color = color; }
    if (isCritical) path.push(pixel, 1);
    cover.fill(0);
    pixel = -1; filled = 0; isCritical = false;
  };
  for (let i = firstVisible(data.slices, lane, from); i < lane.end && start[i] < to; i++) {
    const x0 = left + (start[i] - from) * scale, width = length[i] * scale, of = node[i];
    if (width < 1.5) {
      const column = Math.floor(x0);
      if (column !== pixel) { flushPixel(); pixel = column; }
      cover[code[of]] += width + 1e-6; // what takes no time is seen, too
      filled += width;
      isCritical ||= critical !== undefined && critical[of] > 0;
      continue;
    }
    flushPixel(); flushRun();
    const x = Math.max(x0, left), right = Math.min(x0 + width, left + (to - from) * scale);
    const gap = right - x > 4 ? 0.6 : 0; // neighbors stay apart
    context.fillStyle = palette.solid[code[of]];
    context.fillRect(x, y, right - x - gap, SLICE);
    if (critical !== undefined && critical[of] > 0) path.push(x, right - x - gap);
    if (right - x > 30) label(context, data.words.name[name[i]], x, right, y, palette.text[code[of]]);
  }
  flushPixel(); flushRun();
  context.fillStyle = style.critical;
  for (let i = 0; i < path.length; i += 2) context.fillRect(path[i], y + SLICE, path[i + 1], 2);
}

function label(context, text, x, right, y, color) {
  const room = Math.floor((right - x - 6) / CHAR);
  if (room < 3) return;
  context.fillStyle = color;
  context.fillText(text.length > room ? `${text.slice(0, room - 1)}…` : text, x + 3, y + SLICE / 2 + 0.5);
}

// Moments of the axis: about one per 110 pixels, on 1, 2 or 5 times a power of ten.
function axisStep(usPerPixel) {
  const least = usPerPixel * 110, power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((n) => n * power).find((step) => step >= least);
}

function drawAxis(context, view, style) {
  const step = axisStep((view.to - view.from) / view.plot);
  context.textAlign = "center";
  for (let at = Math.ceil(view.from / step) * step; at <= view.to; at += step) {
    const x = view.left + ((at - view.from) / (view.to - view.from)) * view.plot;
    context.fillStyle = style.line;
    context.fillRect(Math.round(x), AXIS - 5, 1, view.height);
    context.fillStyle = style.dim;
    if (x > view.left + 20 && x < view.left + view.plot - 20) context.fillText(momentText(at, step), x, 10);
  }
  context.textAlign = "left";
}
