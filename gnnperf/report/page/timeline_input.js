// Tools above the timeline, pointer and keyboard, paper; and its start.
"use strict";

// What a kind of work is called in full.
const KEYS = { copy: "copy or memset", wait: "wait for peers", exit: "release from a collective" };

// What slices can be colored by.
const CHOICES = { look: "kind of work", source: "source of latency", phase: "phase", bound: "what bounds it" };

function addTools(timeline) {
  const tools = document.getElementById("timeline-tools");
  const button = (text, title, act) => {
    const made = document.createElement("button");
    Object.assign(made, { type: "button", textContent: text, title });
    made.setAttribute("aria-label", title);
    made.addEventListener("click", act);
    return made;
  };
  const choice = document.createElement("select");
  for (const [value, text] of Object.entries(CHOICES)) choice.add(new Option(text, value));
  choice.addEventListener("change", () => { timeline.column = choice.value; timeline.restyle(); });
  const colored = document.createElement("label");
  colored.append("colors by", choice);
  tools.append(
    button("−", "Zoom out", () => timeline.zoom(1.6)), button("+", "Zoom in", () => timeline.zoom(1 / 1.6)),
    button("←", "Earlier", () => timeline.pan(-0.25)), button("→", "Later", () => timeline.pan(0.25)),
    button("all", "Show all", () => timeline.show(0, timeline.data.span_us)), colored,
  );
  if (timeline.measuredToo) {
    const box = Object.assign(document.createElement("input"), { type: "checkbox", checked: true });
    const label = document.createElement("label");
    label.append(box, "measured lanes");
    box.addEventListener("change", () => { timeline.measuredToo = box.checked; timeline.restyle(); });
    tools.append(label);
  }
  const range = document.createElement("span");
  range.id = "timeline-range";
  tools.append(range);
  tools.hidden = false;
}

function showKeys(timeline, words) {
  const used = new Set(timeline.data.nodes[timeline.column]);
  document.getElementById("timeline-keys").replaceChildren(...words.flatMap((word, code) => {
    if (!used.has(code)) return [];
    const item = document.createElement("li"), key = document.createElement("span");
    key.className = "key";
    key.style.background = timeline.style.palette.solid[code];
    item.append(key, KEYS[word] ?? (word.replaceAll("_", " ") || "none told"));
    return [item];
  }));
}

function listen(timeline) {
  const { canvas } = timeline;
  let grip = null;
  canvas.addEventListener("pointerdown", (event) => {
    grip = { x: event.offsetX, from: timeline.from, to: timeline.to, moved: false };
    if (event.shiftKey) timeline.stretch = [event.offsetX, event.offsetX];
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!grip) return point(timeline, event);
    grip.moved ||= Math.abs(event.offsetX - grip.x) > 3;
    timeline.tip.hidden = true;
    if (timeline.stretch) { timeline.stretch[1] = event.offsetX; return timeline.redraw(); }
    const by = ((grip.x - event.offsetX) / timeline.plot) * (grip.to - grip.from);
    timeline.show(grip.from + by, grip.to + by);
  });
  canvas.addEventListener("pointerup", (event) => {
    const [a, b] = (timeline.stretch ?? [0, 0]).sort((one, other) => one - other);
    timeline.stretch = null;
    if (b - a > 3) timeline.show(timeline.usAt(a), timeline.usAt(b));
    if (grip && !grip.moved) {
      timeline.chosen = sliceAt(timeline, event.offsetX, event.offsetY);
      if (timeline.chosen >= 0) say(timeline, timeline.chosen);
    }
    grip = null;
    timeline.redraw();
  });
  canvas.addEventListener("pointercancel", () => { grip = null; timeline.stretch = null; timeline.redraw(); });
  canvas.addEventListener("pointerleave", () => { timeline.tip.hidden = true; });
  canvas.addEventListener("dblclick", (event) => timeline.zoom(1 / 4, timeline.usAt(event.offsetX)));
  canvas.addEventListener("wheel", (event) => {
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      timeline.zoom(1.0015 ** event.deltaY, timeline.usAt(event.offsetX));
    } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      event.preventDefault();
      timeline.pan((event.deltaX || event.deltaY) / timeline.plot);
    }
  }, { passive: false });
  canvas.addEventListener("keydown", (event) => key(timeline, event));
  timeline.box.addEventListener("scroll", () => timeline.redraw());
  new ResizeObserver(() => timeline.redraw()).observe(timeline.box);
  document.addEventListener("themechange", () => timeline.restyle());
}

function key(timeline, event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const act = {
    ArrowLeft: () => timeline.pan(-0.1), ArrowRight: () => timeline.pan(0.1),
    "+": () => timeline.zoom(1 / 1.4), "=": () => timeline.zoom(1 / 1.4), "-": () => timeline.zoom(1.4),
    0: () => timeline.show(0, timeline.data.span_us), n: () => follow(timeline, 1), p: () => follow(timeline, -1),
    ArrowUp: () => { timeline.box.scrollTop -= ROW * 3; }, ArrowDown: () => { timeline.box.scrollTop += ROW * 3; },
  }[event.key.length === 1 ? event.key.toLowerCase() : event.key];
  if (!act) return;
  event.preventDefault();
  act();
}

// On paper it is drawn as wide as the page, in light colors.
function printLight(timeline) {
  let theme;
  addEventListener("beforeprint", () => {
    theme = document.documentElement.dataset.theme;
    document.documentElement.dataset.theme = "light";
    timeline.restyle();
    timeline.draw();
  });
  addEventListener("afterprint", () => {
    if (theme === undefined) delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    timeline.restyle();
  });
}

function sayInstead(text) {
  document.getElementById("timeline-said").textContent = text;
  document.documentElement.dataset.timeline = "none";
}

timelineData().then((data) => {
  if (data.lanes.length) printLight(new Timeline(data));
  else sayInstead("Nothing has a start and an end: there is no timeline.");
}).catch((error) => {
  sayInstead(`The timeline cannot be drawn: ${error.message}`);
  console.error(error);
});
