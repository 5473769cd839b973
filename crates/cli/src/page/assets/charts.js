// Three small charts: round trips, detection times, traffic.

import { bytes, h, ms, s } from './dom.js';

const POINTS_MAX = 150;
const DETECTIONS_MAX = 16;
const W = 300;
const H = 80;

class Chart {
  #value = h('b', {}, '–');
  #scale = h('p', { class: 'scale', 'aria-hidden': 'true' });
  #svg = s('svg', { viewBox: `0 0 ${W} ${H}`, preserveAspectRatio: 'none', role: 'img' });
  element;

  constructor(title) {
    this.title = title;
    this.element = h('figure', { class: 'chart' }, h('figcaption', {}, h('span', {}, title), this.#value), this.#svg, this.#scale);
    this.#svg.setAttribute('aria-label', `${title}: nothing measured yet`);
  }

  /** A curve of values; `unit` writes one of them. */
  curve(values, unit) {
    const text = unit(values.at(-1));
    const top = Math.max(...values, 1e-9) * 1.15;
    const x = (index) => (index / Math.max(POINTS_MAX - 1, 1)) * W + (W * (POINTS_MAX - values.length)) / POINTS_MAX;
    const points = values.map((value, index) => `${x(index).toFixed(1)},${(H - (value / top) * (H - 4) - 2).toFixed(1)}`);
    this.#show(text, unit(top), s('polyline', { class: 'curve', points: points.join(' ') }));
  }

  bars(values, text) {
    const top = Math.max(...values.map(({ value }) => value), 1e-9) * 1.1;
    const width = W / DETECTIONS_MAX;
    this.#show(text, ms(top), values.map(({ value, kind }, index) => {
      const height = Math.max(2, (value / top) * (H - 4));
      return s('rect', { class: `bar ${kind}`, x: index * width + 3, width: width - 6, y: H - height, height });
    }));
  }

  #show(text, top, ...marks) {
    this.#value.textContent = text;
    this.#scale.textContent = `0 to ${top}`;
    this.#svg.setAttribute('aria-label', `${this.title}: ${text}`);
    this.#svg.replaceChildren(s('line', { class: 'grid', x1: 0, x2: W, y1: H - 1, y2: H - 1 }), s('line', { class: 'grid', x1: 0, x2: W, y1: H / 2, y2: H / 2 }), ...marks.flat());
  }
}

export class Charts {
  #model;
  #rtt = new Chart('Round trip');
  #detection = new Chart('Detection');
  #traffic = new Chart('Sent by all');
  #rtts = [];
  #rates = [];
  #detections = [];
  #last = new Map();
  #lastAt = null;
  #suspectedAt = new Map();

  constructor(model) {
    this.#model = model;
    document.querySelector('#charts .body').append(this.#rtt.element, this.#detection.element, this.#traffic.element);
    model.on('sections', (changed) => {
      if (changed.nodes) this.#onNodes();
      if (changed.traffic) this.#onTraffic(changed.traffic);
    });
    model.on('news', (line) => this.#onNews(line));
    model.on('cleared', () => {
      [this.#rtts, this.#rates, this.#detections] = [[], [], []];
      this.#last.clear();
      this.#lastAt = null;
    });
  }

  #onNodes() {
    const rtts = this.#model.nodes.map((node) => node.rtt_ms).filter((value) => value > 0).sort((a, b) => a - b);
    if (rtts.length === 0) return;
    const median = rtts[Math.floor(rtts.length / 2)];
    this.#rtts.push(median);
    this.#rtts.splice(0, this.#rtts.length - POINTS_MAX);
    this.#rtt.curve(this.#rtts, ms);
  }

  #onTraffic(traffic) {
    const now = performance.now();
    // The first sample after the snapshot comes at once: a rate over so short a time is none.
    if (this.#lastAt !== null && now - this.#lastAt < 200) return;
    const counted = traffic.nodes ?? { all: [traffic.datagrams, traffic.bytes] };
    let sent = 0;
    for (const [id, [, total]] of Object.entries(counted)) {
      const before = this.#last.get(id);
      // A node that was started again counts from zero.
      if (before !== undefined && total >= before) sent += total - before;
      this.#last.set(id, total);
    }
    if (this.#lastAt !== null && now > this.#lastAt) {
      const rate = sent / ((now - this.#lastAt) / 1000);
      this.#rates.push(rate);
      this.#rates.splice(0, this.#rates.length - POINTS_MAX);
      this.#traffic.curve(this.#rates, (value) => `${bytes(value)}/s`);
    }
    this.#lastAt = now;
  }

  /** The first node that suspects, and the first that declares dead. In a demo from the kill on, else from the suspicion on. */
  #onNews(line) {
    if (line.protocol !== 'members' || line.isPast) return;
    const killed = this.#model.killed.get(line.id);
    // In the demo a cut makes deaths that are no detection.
    if (this.#model.kind === 'demo' && killed === undefined) return;
    if (line.event === 'member_suspected' && !this.#suspectedAt.has(line.id)) {
      this.#suspectedAt.set(line.id, line.at_micros);
      if (killed) this.#note((line.at_micros - killed) / 1000, '');
    } else if (line.event === 'member_died' && this.#suspectedAt.has(line.id)) {
      this.#note((line.at_micros - (killed ?? this.#suspectedAt.get(line.id))) / 1000, 'dead');
      this.#suspectedAt.delete(line.id);
    } else if (line.event === 'member_recovered' || line.event === 'member_joined') {
      this.#suspectedAt.delete(line.id);
    }
  }

  #note(value, kind) {
    this.#detections.push({ value, kind });
    this.#detections.splice(0, this.#detections.length - DETECTIONS_MAX);
    this.#detection.bars(this.#detections, `${kind || 'suspect'} ${ms(value)}`);
  }
}
