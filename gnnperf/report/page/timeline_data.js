// The timeline's data out of the page: typed arrays, one per column (gnnperf/report/page/timeline_data.py packs them).
"use strict";

const ARRAY_OF = { u1: Uint8Array, u2: Uint16Array, u4: Uint32Array, f4: Float32Array };

async function unpacked(base64) {
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).arrayBuffer();
}

// A column from the lowest bytes of all its values, then the next bytes, and so on.
function column(byPlace, type, length) {
  const width = ARRAY_OF[type].BYTES_PER_ELEMENT;
  const bytes = new Uint8Array(length * width);
  for (let place = 0; place < width; place++) {
    for (let i = 0; i < length; i++) bytes[i * width + place] = byPlace[place * length + i];
  }
  return new ARRAY_OF[type](bytes.buffer);
}

function summed(gaps) {
  for (let i = 1; i < gaps.length; i++) gaps[i] += gaps[i - 1]; // Uint32Array: modulo 2^32, as packed
  return gaps;
}

// {lanes, words, slices: {start, length, node, name}, nodes: {...}, and numbers}; times of slices are ticks.
async function timelineData() {
  const given = JSON.parse(document.getElementById("timeline-data").textContent);
  const packed = new Uint8Array(await unpacked(given.packed));
  const data = { ...given, packed: null, slices: {}, nodes: {} };
  let at = 0;
  for (const { of, name, type, length, gaps } of given.columns) {
    const values = column(packed.subarray(at), type, length);
    data[of][name] = gaps ? summed(values) : values;
    at += values.byteLength;
  }
  return data;
}

// A duration with four digits and its unit, as everywhere else on the page.
function timeText(us) {
  if (us === undefined || !Number.isFinite(us)) return "unknown";
  const [scale, unit] = Math.abs(us) < 1e3 ? [1, "us"] : Math.abs(us) < 1e6 ? [1e3, "ms"] : [1e6, "s"];
  return `${Number((us / scale).toPrecision(4))} ${unit}`;
}

// The same with as many digits as a difference of `step` us needs.
function momentText(us, step) {
  const [scale, unit] = Math.abs(us) < 1e3 && step < 1e3 ? [1, "us"] : Math.abs(us) < 1e6 ? [1e3, "ms"] : [1e6, "s"];
  return `${(us / scale).toFixed(Math.max(0, Math.min(6, Math.ceil(-Math.log10(step / scale)))))} ${unit}`;
}
