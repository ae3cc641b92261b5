'use strict';
// Drawings on a canvas, in the colours of the style.
let palette = {};

function readPalette() {
  const style = getComputedStyle(document.documentElement);
  const colours = ['card', 'soft', 'text', 'strong', 'grid', 'edge', 'offered', 'passed', 'tint', 'limit', 'one', 'two', 'three'];
  palette = Object.fromEntries(colours.map((colour) => [colour, style.getPropertyValue(`--${colour}`).trim()]));
}

class Pen {
  constructor(canvas) {
    const ratio = devicePixelRatio || 1;
    [this.w, this.h] = [canvas.clientWidth, canvas.clientHeight];
    const [width, height] = [Math.round(this.w * ratio), Math.round(this.h * ratio)];
    if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
    this.c = canvas.getContext('2d');
    this.c.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.c.clearRect(0, 0, this.w, this.h);
  }
  fade(alpha) { this.c.globalAlpha = Math.max(0, Math.min(1, alpha)); }
  box(x, y, w, h, fill, stroke, radius = 0) {
    const { c } = this;
    Object.assign(c, { fillStyle: palette[fill], strokeStyle: palette[stroke], lineWidth: 1 }).beginPath();
    c.roundRect(x, y, w, h, radius);
    if (fill) c.fill();
    if (stroke) c.stroke();
  }
  line(points, colour, width = 1, dash = []) {
    const { c } = this;
    Object.assign(c, { strokeStyle: palette[colour], lineWidth: width }).beginPath();
    points.forEach(([x, y]) => c.lineTo(x, y));
    c.setLineDash(dash);
    c.stroke();
    c.setLineDash([]);
  }
  text(words, x, y, { colour = 'text', size = 12, align = 'left', weight = 400 } = {}) {
    const { c } = this;
    Object.assign(c, { font: `${weight} ${size}px system-ui, "Segoe UI", "Noto Sans", sans-serif`, fillStyle: palette[colour], textAlign: align, textBaseline: 'alphabetic' });
    c.fillText(words, x, y);
  }
  shape(client, x, y, r = 6) {
    const { c } = this;
    c.beginPath();
    if (client === 2) c.rect(x - r * 0.9, y - r * 0.9, r * 1.8, r * 1.8);
    else if (client === 3) for (const [dx, dy] of [[0, -1.1], [1.15, 0.9], [-1.15, 0.9]]) c.lineTo(x + dx * r, y + dy * r);
    else c.arc(x, y, client > 3 ? r / 2 : r, 0, 7);
    c.fillStyle = palette[['one', 'two', 'three'][client - 1] ?? 'edge'];
    c.fill();
  }
}
