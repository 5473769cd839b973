// The ring: nodes at their ids, clockwise from the top, and everything that happens between them.

import { at, h, plain, s, show } from './dom.js';
import { turn } from './model.js';
import { Motion, curve, curvePath } from './motion.js';

const R = 232;
const TOKEN_R = R - 30;
const MANY = 48;
const TOKEN_GONE_MS = 2500;
/** Nodes that are closer, as a part of a turn, cannot have their names side by side. */
const CLOSE = 0.016;

const WORDS = { alive: '', suspect: 'suspect', dead: 'dead', left: 'left', still: 'is suspended', killed: 'killed', unknown: '' };

const DOT = 'M12.5 3a6 6 0 1 0 .01 0';
const LINE = 'M2 9H23';
const LEGEND = [
  ['alive', DOT, 'alive'], ['suspect', DOT, 'suspect'], ['dead', 'M8 4l9 10M17 4l-9 10', 'dead'], ['still', DOT, 'suspended'], ['token', DOT.replaceAll('6', '4.5'), 'token'],
  ['message', LINE, 'message'], ['letter', LINE, 'letter that waits'], ['leaf', LINE, 'leaf set'], ['entry', LINE, 'routing table'],
];

function place(part, radius = R) {
  const angle = part * 2 * Math.PI;
  return { x: radius * Math.sin(angle), y: -radius * Math.cos(angle) };
}

/** The arc of the ring between two parts of a turn, clockwise. */
function arc(from, to, radius) {
  const length = (to - from + 1) % 1;
  const [a, b] = [place(from, radius), place(to, radius)];
  return `M${a.x} ${a.y}A${radius} ${radius} 0 ${length > 0.5 ? 1 : 0} 1 ${b.x} ${b.y}`;
}

export class Ring {
  #model;
  #svg = at('ring');
  #layers = {};
  #nodes = new Map();
  #tokens = new Map();
  #turn = null;
  #fence = 0;
  #motion;

  constructor(model) {
    this.#model = model;
    for (const name of ['base', 'links', 'tables', 'cut', 'letters', 'probe', 'flights', 'nodes', 'tokens', 'centre']) {
      this.#layers[name] = s('g', { 'aria-hidden': name === 'nodes' ? undefined : 'true' });
      this.#svg.append(this.#layers[name]);
    }
    this.#motion = new Motion(this.#layers.flights);
    this.#drawBase();
    model.on('sections', (changed) => this.#onSections(changed));
    model.on('selection', () => this.#onSelection());
    model.on('news', (line) => this.#onNews(line));
    model.on('cleared', () => {
      this.#motion.clear();
      [this.#turn, this.#fence] = [null, 0];
    });
    this.#svg.addEventListener('keydown', (event) => this.#onKey(event));
  }

  /** The leaf set and the routing table of the selected node, drawn when they are known. */
  showTables(detail) {
    const { selected } = this.#model;
    const own = turn(selected);
    const tables = detail?.tables;
    show(this.#layers.tables, [selected, tables], () => {
      if (!tables) return [];
      const last = (list) => list[list.length - 1]?.id;
      const [far, near] = [last(tables.clockwise), last(tables.counter_clockwise)];
      return [
        far && s('path', { class: 'leaf', d: arc(own, turn(far), R + 11) }),
        near && s('path', { class: 'leaf', d: arc(turn(near), own, R + 11) }),
        tables.cells.map((cell) => {
          const [a, b] = [place(own), place(turn(cell.id))];
          return s('line', { class: 'entry', x1: a.x, y1: a.y, x2: b.x, y2: b.y });
        }),
      ];
    });
  }

  #drawBase() {
    const base = this.#layers.base;
    base.append(s('circle', { class: 'circle', r: R }));
    for (let digit = 0; digit < 16; digit += 1) {
      const [a, b, c] = [place(digit / 16, R - 7), place(digit / 16, R), place(digit / 16, R - 16)];
      base.append(s('line', { class: 'tick', x1: a.x, y1: a.y, x2: b.x, y2: b.y }));
      base.append(s('text', { class: 'digit', x: c.x, y: c.y }, digit.toString(16)));
    }
    this.#layers.centre.append(s('text', { class: 'centre-label', y: -26 }), s('text', { class: 'centre-name', y: 6 }), s('text', { class: 'centre-label', y: 32 }));
    at('legend').append(...LEGEND.map(([sign, d, word]) => h('li', {}, s('svg', { viewBox: '0 0 25 18', 'aria-hidden': 'true' }, s('path', { class: `sign-${sign}`, d })), word)));
  }

  #onSections(changed) {
    if (changed.nodes || changed.mesh) this.#drawNodes();
    if (changed.mesh || changed.nodes) this.#drawLinks();
    if (changed.mesh) this.#drawLetters();
    if (changed.token || changed.view) this.#drawTokens();
    if (changed.route) this.#drawProbe();
    if (changed.nodes || changed.view) this.#drawCut();
  }

  #onSelection() {
    this.#drawNodes();
    this.#drawLinks();
    this.showTables(null);
  }

  #drawNodes() {
    const { nodes, selected, sections } = this.#model;
    this.#svg.classList.toggle('many', nodes.length > MANY);
    const ids = new Set(nodes.map((node) => node.id));
    let isGone = false;
    for (const [id, shown] of this.#nodes) {
      if (ids.has(id)) continue;
      shown.group.remove();
      this.#nodes.delete(id);
      isGone = true;
    }
    const isNew = nodes.filter((node) => !this.#nodes.has(node.id)).map((node) => this.#addNode(node, nodes.length)).length > 0;
    if (isNew || isGone) this.#placeNames();
    for (const node of nodes) {
      const shown = this.#nodes.get(node.id);
      const state = this.#model.stateOf(node);
      const waiting = sections.mesh?.queues?.[node.id]?.waiting ?? 0;
      const key = [node.name, state, node.up, node.suspended, node.side, waiting, node.id === selected];
      const text = JSON.stringify(key);
      if (shown.key === text) continue;
      shown.key = text;
      const group = shown.group;
      group.dataset.state = node.state;
      group.dataset.up = node.up !== false;
      group.dataset.suspended = Boolean(node.suspended);
      group.dataset.side = node.side ?? 0;
      group.setAttribute('aria-pressed', node.id === selected);
      group.setAttribute('tabindex', node.id === selected ? 0 : -1);
      const word = WORDS[state] || 'alive';
      const mail = waiting > 0 ? `, ${waiting} ${waiting === 1 ? 'message waits' : 'messages wait'} here` : '';
      group.setAttribute('aria-label', `${node.name}, ${word}${mail}`);
      shown.name.textContent = plain(node.name);
      shown.state.textContent = WORDS[state];
      shown.queue.textContent = waiting > 0 ? `✉ ${waiting}` : '';
      shown.queue.setAttribute('dy', WORDS[state] ? 14 * shown.up : 0);
    }
  }

  #addNode(node, count) {
    const part = turn(node.id);
    const dot = place(part);
    const size = count > MANY ? 6 : 11;
    const [name, state, queue] = ['name', 'state', 'queue'].map((className) => s('text', { class: className }));
    const cross = size * 0.42;
    const at = `translate(${dot.x.toFixed(1)} ${dot.y.toFixed(1)})`;
    const group = s('g', { class: 'node', role: 'button', 'data-id': node.id, onclick: () => this.#model.select(node.id) },
      s('circle', { class: 'halo', r: size + 6, transform: at }),
      s('circle', { class: 'dot', r: size, transform: at }),
      s('path', { class: 'cross', transform: at, d: `M${-cross} ${-cross}L${cross} ${cross}M${-cross} ${cross}L${cross} ${-cross}` }),
      name, state, queue);
    this.#layers.nodes.append(group);
    const shown = { group, name, state, queue, part, up: 1, key: '' };
    this.#nodes.set(node.id, shown);
    return shown;
  }

  /** Puts the names beside the nodes; where nodes are close, one name stands further out than the other. */
  #placeNames() {
    let [last, layer] = [-1, 0];
    for (const shown of [...this.#nodes.values()].sort((a, b) => a.part - b.part)) {
      layer = shown.part - last < CLOSE && layer < 2 && this.#nodes.size <= MANY ? layer + 1 : 0;
      last = shown.part;
      const label = place(shown.part, R + 27 + layer * 24);
      const side = Math.abs(label.x) < 40 ? 'middle' : label.x > 0 ? 'start' : 'end';
      const y = label.y + (side === 'middle' ? (label.y > 0 ? 12 : -14) : 4);
      // Near the top the other lines stand above the name, where the dot is not.
      shown.up = label.y < -0.72 * R ? -1 : 1;
      [shown.name, shown.state, shown.queue].forEach((text, index) => {
        text.setAttribute('x', label.x.toFixed(1));
        text.setAttribute('y', (y + (index === 0 ? 0 : 15 * shown.up)).toFixed(1));
        text.setAttribute('text-anchor', side);
      });
    }
  }

  #drawLinks() {
    const { sections, selected } = this.#model;
    const links = sections.mesh?.links ?? [];
    show(this.#layers.links, [links, selected], () => links.map(([a, b]) => {
      const of = a === selected || b === selected;
      return s('path', { class: of ? 'link of-selected' : 'link', d: curvePath(curve(place(turn(a)), place(turn(b)))) });
    }));
  }

  #drawCut() {
    const { nodes, sections } = this.#model;
    const isCut = Boolean(sections.view?.is_cut);
    const side = nodes.map((node) => [node.id, node.side ?? 0]);
    show(this.#layers.cut, [isCut, side], () => {
      if (!isCut) return [];
      // A line goes through the ring wherever two neighbours are on different sides.
      const order = [...nodes].sort((a, b) => turn(a.id) - turn(b.id));
      const borders = order.flatMap((node, index) => {
        const next = order[(index + 1) % order.length];
        const [from, to] = [turn(node.id), turn(next.id)];
        return (node.side ?? 0) === (next.side ?? 0) ? [] : [from + (((to - from + 1) % 1) / 2)];
      });
      return borders.map((part) => {
        const [a, b] = [place(part, 36), place(part, R + 50)];
        return s('line', { class: 'cut', x1: a.x, y1: a.y, x2: b.x, y2: b.y });
      }).concat(s('text', { class: 'cut-label', y: 56 }, 'the network is cut'));
    });
  }

  #drawProbe() {
    const probe = this.#model.sections.route?.probe;
    show(this.#layers.probe, probe, () => {
      if (!probe) return [];
      const part = turn(probe.key);
      const key = place(part, R - 62);
      return [
        s('circle', { class: 'probe-key', r: 4, cx: key.x, cy: key.y }),
        // On the inner side: the lines to its owners go outwards.
        s('text', { class: 'probe-label', x: key.x + (key.x < 0 ? 10 : -10), y: key.y + 4, 'text-anchor': key.x < 0 ? 'start' : 'end' }, `key ${probe.text}`),
        probe.owners.map(({ owner }) => {
          const end = place(turn(owner), R - 14);
          return s('line', { class: 'probe', x1: key.x, y1: key.y, x2: end.x, y2: end.y });
        }),
      ];
    });
  }

  #drawTokens() {
    const token = this.#model.sections.token;
    const tokens = (token?.tokens ?? []).filter((item) => item.holder);
    if (token) {
      const ids = new Set((token.tokens ?? []).map((item) => String(item.token_id)));
      const stood = (shown) => performance.now() - shown.movedAt;
      const isMoving = [...this.#tokens.values()].some((shown) => stood(shown) < TOKEN_GONE_MS);
      for (const [id, shown] of this.#tokens) {
        // Nodes name a token until its successor comes to them; one that moves no more is merged or lost.
        if (!ids.has(id) || (isMoving && stood(shown) > TOKEN_GONE_MS)) {
          shown.remove();
          this.#tokens.delete(id);
        }
      }
    }
    tokens.forEach((item) => this.#moveToken(String(item.token_id), item.holder));
    this.#drawTurn();
  }

  /** The centre: whose turn it is, and its fence. */
  #drawTurn() {
    const { sections, name } = { sections: this.#model.sections, name: (id) => this.#model.name(id) };
    const [above, middle, below] = this.#layers.centre.children;
    const tokens = sections.token?.tokens ?? [];
    const held = tokens.filter((item) => item.holder).length;
    const fence = tokens.reduce((most, item) => Math.max(most, item.fence ?? 0), this.#fence);
    const has = Boolean(sections.token) && (sections.view?.services ?? []).includes('token');
    above.textContent = !has ? '' : held > 1 ? `${held} tokens` : this.#turn ? 'turn of' : 'token';
    middle.textContent = !has ? '' : this.#turn ? name(this.#turn) : 'goes round';
    // Fences begin at the clock of the first holder: their last digits tell them apart.
    below.textContent = has && fence ? `fence ${fence > 1e7 ? `…${String(fence).slice(-6)}` : fence}` : '';
  }

  /** Letters that wait, from the node that holds each to the node that is away. */
  #drawLetters() {
    const mail = this.#model.sections.mesh?.mail ?? [];
    const open = mail.filter((letter) => letter.state !== 'delivered' && this.#model.byId.get(letter.to)?.up === false);
    const ways = new Set(open.flatMap((letter) => (letter.custodians.length > 0 ? letter.custodians : [letter.from]).map((holder) => `${holder} ${letter.to}`)));
    show(this.#layers.letters, [...ways], () => [...ways].map((way) => {
      const [a, b] = way.split(' ').map((id) => place(turn(id)));
      return s('path', { class: 'letter', d: curvePath(curve(a, b)) });
    }));
  }

  #moveToken(id, holder) {
    let shown = this.#tokens.get(id);
    if (!shown) {
      shown = s('circle', { class: 'token', r: 8 });
      this.#layers.tokens.append(shown);
      this.#tokens.set(id, shown);
    }
    shown.movedAt = performance.now();
    this.#motion.glide(shown, place(turn(holder), TOKEN_R));
  }

  #onNews(line) {
    if (line.isPast) return;
    const model = this.#model;
    const spot = (id) => place(turn(id));
    if (line.protocol === 'token' && line.event === 'token_taken') {
      const node = model.byName.get(line.node);
      if (node) this.#moveToken(String(line.token_id), node.id);
      if (line.fence) this.#fence = Math.max(this.#fence, line.fence);
      this.#drawTurn();
    } else if (line.protocol === 'demo' && (line.event === 'turn_began' || line.event === 'turn_ended')) {
      if (line.event === 'turn_began') this.#turn = line.id;
      else if (this.#turn === line.id) this.#turn = null;
      this.#drawTurn();
    } else if (line.protocol === 'demo' && line.event === 'killed' && this.#turn === line.id) {
      this.#turn = null;
    } else if (line.protocol === 'demo' && line.event === 'message_routed') {
      this.#motion.fly(line.path.map(spot));
    } else if (line.protocol === 'route' && line.event === 'delivered' && model.kind !== 'demo') {
      const [from, to] = [line.origin?.id ?? line.origin, model.byName.get(line.node)?.id];
      if (from && to && from !== to) this.#motion.fly([from, to].map(spot));
    } else if (line.protocol === 'mesh' && line.event === 'message_forwarded') {
      const from = model.byName.get(line.node)?.id;
      if (from) line.to.forEach((nid) => this.#motion.fly([from, nid.slice(0, 32)].map(spot), 'mail'));
    }
  }

  /** Arrows go round the ring; digits and letters are for the controls. */
  #onKey(event) {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    this.step(step);
    this.#nodes.get(this.#model.selected)?.group.focus();
  }

  /** Selects the next node clockwise, or the one before. */
  step(by) {
    const order = [...this.#model.nodes].sort((a, b) => turn(a.id) - turn(b.id));
    const index = order.findIndex((node) => node.id === this.#model.selected);
    const next = order[(index + by + order.length) % order.length];
    if (next) this.#model.select(next.id);
  }
}
