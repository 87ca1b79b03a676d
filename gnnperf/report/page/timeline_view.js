// The timeline: which stretch of time is seen, and how it is put together.
"use strict";

class Timeline {
  constructor(data) {
    this.data = data;
    this.canvas = document.getElementById("timeline-canvas");
    this.box = document.getElementById("timeline-box");
    this.tip = document.getElementById("timeline-tip");
    this.context = this.canvas.getContext("2d");
    this.from = 0;
    this.to = data.span_us;
    this.column = "look";
    this.measuredToo = data.lanes.some((lane) => lane.kind === "measured");
    this.chosen = -1; // slice
    this.stretch = null; // pixels, while Shift and drag choose one
    this.asked = false;
    this.critical = criticalSlices(this);
    this.box.hidden = false;
    addTools(this);
    listen(this);
    this.restyle();
  }

  // --- what is drawn ---------------------------------------------------------------------------------------------

  restyle() {
    const words = this.data.words[this.column];
    this.style = {
      palette: paletteOf(this.column, words), code: this.data.nodes[this.column],
      ...Object.fromEntries(["critical", "line", "dim", "text", "back", "raised", "accent"].map((name) => [name, colorOf(name)])),
    };
    showKeys(this, words);
    this.layout = layoutOf(this.data.lanes, this.measuredToo);
    document.getElementById("timeline-size").style.height = `${this.layout.height}px`;
    this.redraw();
  }

  redraw() { // at most once per frame
    if (this.asked) return;
    this.asked = true;
    requestAnimationFrame(() => { this.asked = false; this.draw(); });
  }

  draw() {
    const width = this.box.clientWidth, height = Math.min(this.layout.height, this.box.clientHeight);
    const sharp = devicePixelRatio || 1, c = this.context;
    if (this.canvas.width !== Math.round(width * sharp) || this.canvas.height !== Math.round(height * sharp)) {
      this.canvas.width = Math.round(width * sharp);
      this.canvas.height = Math.round(height * sharp);
      this.canvas.style.width = `${width}px`;
      this.canvas.style.height = `${height}px`;
    }
    this.left = width < 600 ? 84 : 170;
    this.plot = Math.max(width - this.left - 1, 50);
    c.setTransform(sharp, 0, 0, sharp, 0, 0);
    c.font = "11px ui-monospace, 'DejaVu Sans Mono', monospace";
    c.textBaseline = "middle";
    c.fillStyle = this.style.back;
    c.fillRect(0, 0, width, height);
    const { opens_us: opens, span_us: span } = this.data, seen = this.to - this.from;
    const { left, plot } = this;
    drawAxis(c, { from: this.from + opens, to: this.to + opens, left, plot, height }, this.style);
    this.drawRows(c, width, height);
    this.drawMarks(c, height);
    const range = `${timeText(seen)} of ${timeText(span)} shown, from ${momentText(this.from + opens, seen / 100)}`;
    document.getElementById("timeline-range").textContent = range;
    document.documentElement.dataset.timeline ??= performance.now().toFixed(0); // ms since the page was asked for
  }

  drawRows(c, width, height) {
    const { tick_us: tick } = this.data, scrolled = this.box.scrollTop, scale = (this.plot * tick) / (this.to - this.from);
    const place = { from: this.from / tick, to: this.to / tick, left: this.left, scale };
    c.save();
    c.beginPath();
    c.rect(0, AXIS - 2, width, height);
    c.clip();
    for (const row of this.layout.rows) {
      const y = row.y - scrolled;
      if (y + row.height < AXIS || y > height) continue;
      if (row.head) {
        c.fillStyle = this.style.raised;
        c.fillRect(0, y, width, HEAD - 2);
        c.fillStyle = this.style.text;
        c.fillText(row.head, 6, y + HEAD / 2 - 1);
        continue;
      }
      drawLane(c, this.data, row.lane, { ...place, y }, this.style);
      c.fillStyle = this.style.back;
      c.fillRect(0, y, this.left - 1, ROW);
      c.fillStyle = row.lane.kind === "measured" ? this.style.dim : this.style.text;
      c.fillText(this.laneName(row.lane), 12, y + SLICE / 2 + 0.5);
    }
    c.restore();
  }

  laneName(lane) {
    const room = Math.floor((this.left - 16) / CHAR);
    const short = lane.name.replace(/(thread|stream) /, (word) => word[0]).replace(/(pred|meas)\w*/, "$1.");
    const name = room < 20 ? short : lane.name;
    return name.length > room ? `${name.slice(0, room - 1)}…` : name;
  }

  drawMarks(c, height) { // where the step begins and ends, the slice chosen, the stretch being chosen
    c.setLineDash([4, 3]);
    c.strokeStyle = this.style.accent;
    for (const us of [this.data.step_opens_us, this.data.step_closes_us]) {
      const x = Math.round(this.xOf(us - this.data.opens_us)) + 0.5;
      if (x < this.left || x > this.left + this.plot + 1) continue;
      c.beginPath(); c.moveTo(x, AXIS - 6); c.lineTo(x, height); c.stroke();
    }
    c.setLineDash([]);
    if (this.chosen >= 0) this.outline(c);
    if (this.stretch) {
      c.fillStyle = withAlpha(this.style.accent, 0.2);
      c.fillRect(Math.min(...this.stretch), AXIS, Math.abs(this.stretch[1] - this.stretch[0]), height);
    }
  }

  outline(c) {
    const row = this.rowOf(this.chosen);
    if (!row) return; // of a lane that is hidden now
    const { slices: { start, length }, tick_us: tick } = this.data, y = row.y - this.box.scrollTop;
    const x = Math.max(this.xOf(start[this.chosen] * tick), this.left);
    const right = this.xOf((start[this.chosen] + length[this.chosen]) * tick);
    c.strokeStyle = this.style.critical;
    c.lineWidth = 2;
    if (y > AXIS - ROW && right >= this.left) c.strokeRect(x - 1, y - 1, Math.max(right - x, 1) + 2, SLICE + 3);
    c.lineWidth = 1;
  }

  rowOf(i) { return this.layout.rows.find(({ lane }) => lane && i >= lane.first && i < lane.end); }
  xOf(us) { return this.left + ((us - this.from) / (this.to - this.from)) * this.plot; }
  usAt(x) { return this.from + ((x - this.left) / this.plot) * (this.to - this.from); }

  // --- moving ----------------------------------------------------------------------------------------------------

  show(from, to) {
    const { span_us: span, tick_us: tick } = this.data;
    const width = Math.min(Math.max(to - from, tick * 20, span / 1e7), span);
    this.from = Math.min(Math.max(from, 0), span - width);
    this.to = this.from + width;
    this.redraw();
  }

  zoom(factor, around = (this.from + this.to) / 2) {
    this.show(around - (around - this.from) * factor, around + (this.to - around) * factor);
  }

  pan(share) { const by = share * (this.to - this.from); this.show(this.from + by, this.to + by); }
}
