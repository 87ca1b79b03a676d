// What slices say: under the pointer, chosen, and one after the other along the critical path.
"use strict";

function facts(timeline, i) {
  const { slices: s, nodes: n, words: w, tick_us: tick, opens_us: opens } = timeline.data, node = s.node[i];
  const lane = timeline.data.lanes.find(({ first, end }) => i >= first && i < end);
  const us = (column) => (n[column] === undefined || Number.isNaN(n[column][node]) ? undefined : n[column][node]);
  const begin = momentText(s.start[i] * tick + opens, Math.max(s.length[i] * tick, tick) / 100);
  const rows = [
    ["on", `rank ${lane.rank}, ${lane.name}`],
    ["from", `${begin}, for ${timeText(s.length[i] * tick)}`],
    ["latency", timeText(us("latency_us"))],
  ];
  if (us("low_us") !== undefined) rows.push(["interval", `${timeText(us("low_us"))} to ${timeText(us("high_us"))}`]);
  if (us("measured_us") !== undefined) rows.push(["measured", timeText(us("measured_us"))]);
  if (us("critical_us") > 0) rows.push(["critical path", timeText(us("critical_us"))]);
  for (const column of ["shapes", "dtype", "source", "bound", "phase", "family"]) {
    const word = w[column][n[column][node]];
    if (word) rows.push([column === "bound" ? "bound by" : column, word]);
  }
  return { name: w.name[s.name[i]], rows };
}

function sliceAt(timeline, x, y) {
  const below = y + timeline.box.scrollTop;
  const row = timeline.layout.rows.find((each) => each.lane && below >= each.y && below < each.y + ROW);
  if (!row || y < AXIS || x < timeline.left) return -1;
  const { slices: { start }, tick_us: tick } = timeline.data;
  const near = (2 / timeline.plot) * (timeline.to - timeline.from); // two pixels
  const i = firstVisible(timeline.data.slices, row.lane, (timeline.usAt(x) - near) / tick);
  return i < row.lane.end && start[i] * tick <= timeline.usAt(x) + near ? i : -1;
}

function point(timeline, event) {
  const i = sliceAt(timeline, event.offsetX, event.offsetY);
  timeline.tip.hidden = i < 0;
  if (i < 0) return;
  const { name, rows } = facts(timeline, i), list = document.createElement("dl"), head = document.createElement("b");
  head.textContent = name;
  for (const [what, value] of rows) {
    const dt = document.createElement("dt"), dd = document.createElement("dd");
    dt.textContent = what;
    dd.textContent = value;
    list.append(dt, dd);
  }
  timeline.tip.replaceChildren(head, list);
  const { offsetWidth: width, offsetHeight: height } = timeline.tip;
  const below = event.clientY + 18, above = Math.max(4, event.clientY - height - 12);
  timeline.tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - width - 8))}px`;
  timeline.tip.style.top = `${below + height > innerHeight ? above : below}px`;
}

function say(timeline, i) {
  const { name, rows } = facts(timeline, i);
  document.getElementById("timeline-said").textContent = `${name}: ${rows.map(([what, value]) => `${what} ${value}`).join("; ")}`;
}

// Predicted slices of the critical path in the order of time.
function criticalSlices(timeline) {
  const { slices: { start, node }, nodes: { critical_us: critical }, lanes } = timeline.data, found = [];
  for (const lane of lanes) {
    if (lane.kind !== "predicted") continue;
    for (let i = lane.first; i < lane.end; i++) if (critical?.[node[i]] > 0) found.push(i);
  }
  return found.sort((a, b) => start[a] - start[b]);
}

// To the next slice of the critical path, or (-1) the one before.
function follow(timeline, by) {
  const { slices: { start }, tick_us: tick } = timeline.data;
  const now = timeline.critical.indexOf(timeline.chosen);
  const next = now < 0 ? timeline.critical.findIndex((i) => start[i] * tick >= timeline.from) : now + by;
  if (!(next >= 0 && next < timeline.critical.length)) return;
  timeline.chosen = timeline.critical[next];
  bringIntoView(timeline, timeline.chosen);
  say(timeline, timeline.chosen);
  timeline.redraw();
}

function bringIntoView(timeline, i) {
  const { slices: { start, length }, tick_us: tick } = timeline.data, { box } = timeline;
  const begin = start[i] * tick, end = begin + length[i] * tick, half = (timeline.to - timeline.from) / 2;
  if (begin < timeline.from || end > timeline.to) timeline.show((begin + end) / 2 - half, (begin + end) / 2 + half);
  const { y } = timeline.rowOf(i);
  if (y - box.scrollTop < AXIS || y + ROW - box.scrollTop > box.clientHeight) box.scrollTop = y - box.clientHeight / 2;
}
