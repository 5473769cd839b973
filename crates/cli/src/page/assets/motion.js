// What moves: messages hop by hop, mail, the token. One animation frame drives all of it; nothing runs while nothing moves.

import { s } from './dom.js';

const FLIGHTS_MAX = 24;
const HOP_MS = 420;
const FADE_MS = 1400;

const calm = window.matchMedia('(prefers-reduced-motion: reduce)');

/** The curve between two places of the ring, bent towards its centre: the more, the further they are apart. */
export function curve(a, b) {
  const radius = Math.max(Math.hypot(a.x, a.y), Math.hypot(b.x, b.y), 1);
  const bend = 1 - 0.75 * Math.min(1, Math.hypot(a.x - b.x, a.y - b.y) / (1.2 * radius));
  return { a, b, c: { x: ((a.x + b.x) / 2) * bend, y: ((a.y + b.y) / 2) * bend } };
}

export function curvePath({ a, b, c }) {
  return `M${a.x.toFixed(1)} ${a.y.toFixed(1)}Q${c.x.toFixed(1)} ${c.y.toFixed(1)} ${b.x.toFixed(1)} ${b.y.toFixed(1)}`;
}

function along({ a, b, c }, t) {
  const u = 1 - t;
  return { x: u * u * a.x + 2 * u * t * c.x + t * t * b.x, y: u * u * a.y + 2 * u * t * c.y + t * t * b.y };
}

const ease = (t) => (t < 0.5 ? 2 * t * t : 1 - (-2 * t + 2) ** 2 / 2);

export class Motion {
  #layer;
  #moving = new Set();
  #frame = null;

  constructor(layer) {
    this.#layer = layer;
  }

  /** Lets a message fly over these places. */
  fly(places, kind = '') {
    const curves = places.slice(1).map((place, index) => curve(places[index], place));
    if (curves.length === 0) return;
    while (this.#moving.size >= FLIGHTS_MAX) this.#drop(this.#moving.values().next().value);
    const traces = curves.map((item) => s('path', { d: curvePath(item), class: `trace ${kind}`, opacity: 0 }));
    const dot = s('circle', { r: 6, class: `flight ${kind}`, cx: places[0].x, cy: places[0].y });
    this.#layer.append(...traces, dot);
    const flying = curves.length * HOP_MS;
    this.#add({
      elements: [...traces, dot],
      step(time) {
        const at = calm.matches ? flying : time;
        const hop = Math.min(Math.floor(at / HOP_MS), curves.length - 1);
        traces.forEach((trace, index) => trace.setAttribute('opacity', index <= hop ? 0.6 : 0));
        if (at < flying) {
          const place = along(curves[hop], ease((at - hop * HOP_MS) / HOP_MS));
          dot.setAttribute('cx', place.x.toFixed(1));
          dot.setAttribute('cy', place.y.toFixed(1));
          return true;
        }
        const fade = Math.max(0, 1 - (time - (calm.matches ? 0 : flying)) / FADE_MS);
        dot.setAttribute('opacity', 0);
        traces.forEach((trace) => trace.setAttribute('opacity', (0.6 * fade).toFixed(2)));
        return fade > 0;
      },
    });
  }

  /** Moves an element from where it is to a place. */
  glide(element, to, duration = 160) {
    const from = { x: Number(element.getAttribute('cx')), y: Number(element.getAttribute('cy')) };
    if (element.flight) this.#moving.delete(element.flight);
    const set = (place) => {
      element.setAttribute('cx', place.x.toFixed(1));
      element.setAttribute('cy', place.y.toFixed(1));
    };
    if (calm.matches || !element.hasAttribute('cx')) return set(to);
    element.flight = this.#add({
      elements: [],
      step(time) {
        const t = Math.min(1, time / duration);
        set({ x: from.x + (to.x - from.x) * ease(t), y: from.y + (to.y - from.y) * ease(t) });
        return t < 1;
      },
    });
  }

  clear() {
    [...this.#moving].forEach((item) => this.#drop(item));
  }

  #add(item) {
    item.begin = performance.now();
    this.#moving.add(item);
    this.#frame ??= requestAnimationFrame((now) => this.#tick(now));
    return item;
  }

  #drop(item) {
    item.elements.forEach((element) => element.remove());
    this.#moving.delete(item);
  }

  #tick(now) {
    for (const item of this.#moving) {
      if (!item.step(Math.max(0, now - item.begin))) this.#drop(item);
    }
    this.#frame = this.#moving.size > 0 ? requestAnimationFrame((next) => this.#tick(next)) : null;
  }
}
