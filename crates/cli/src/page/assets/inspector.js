// The selected node: how it is, how the others see it, and its tables.

import { at, h, ms, plain, show } from './dom.js';

const EVERY_MS = 2000;

const STATES = { alive: 'alive', suspect: 'suspect', dead: 'dead', left: 'left', still: 'is suspended', killed: 'killed, not noticed yet' };

/** A word for the state of a node, with its colour. */
export function stateWord(state) {
  const look = state === 'killed' ? 'dead' : state;
  return h('span', { class: `state-word is-${look}` }, STATES[state] ?? state);
}

export class Inspector {
  #model;
  #feed;
  #ring;
  #detail = null;
  #asked = 0;

  constructor(model, feed, ring) {
    [this.#model, this.#feed, this.#ring] = [model, feed, ring];
    model.on('selection', () => {
      this.#detail = null;
      this.#draw();
      this.#ask();
    });
    model.on('sections', () => this.#draw());
    setInterval(() => {
      if (!document.hidden && model.connection === 'live') this.#ask();
    }, EVERY_MS);
  }

  async #ask() {
    const { selected, kind } = this.#model;
    if (!selected || kind === 'replay') return;
    this.#asked += 1;
    const asked = this.#asked;
    const node = this.#model.byId.get(selected);
    const isInside = kind === 'demo' ? node?.up && !node.suspended : node?.is_self;
    const detail = isInside ? await this.#feed.get(`/v1/page/nodes/${selected}`).catch(() => null) : null;
    if (asked !== this.#asked) return;
    this.#detail = detail;
    this.#ring.showTables(detail);
    this.#draw();
  }

  #draw() {
    const model = this.#model;
    const node = model.byId.get(model.selected);
    at('inspector-title').textContent = node ? plain(node.name) : 'Selected node';
    const queue = model.sections.mesh?.queues?.[model.selected];
    show(at('inspector-body'), [node, this.#detail, queue, model.nodes.map((other) => other.name)], () => {
      if (!node) return h('p', { class: 'empty' }, 'Select a node on the ring.');
      return [this.#facts(node, queue), ...this.#tables(node)];
    });
  }

  #facts(node, queue) {
    const detail = this.#detail;
    const seen = node.seen;
    const row = (term, ...value) => [h('dt', {}, term), h('dd', {}, ...value)];
    const tags = Object.entries(node.tags ?? {});
    return h('dl', { class: 'facts' },
      row('state', stateWord(this.#model.stateOf(node))),
      seen && row('seen as', `alive by ${seen.alive}, suspect by ${seen.suspect}, dead by ${seen.dead}`),
      row('id', h('span', { class: 'mono' }, node.id)),
      node.addr && row('address', h('span', { class: 'mono' }, node.addr)),
      this.#model.kind !== 'replay' && row('round trip', ms(node.rtt_ms)),
      tags.length > 0 && row('tags', tags.map(([key, value]) => `${key}=${value}`).join(', ')),
      detail?.token && row('token', `${detail.token.state}, ${detail.token.tenures} turns, fence ${detail.token.fence ?? '–'}`),
      queue && row('mail', `${queue.waiting} wait here, ${queue.inbox} in the inbox, ${queue.outbox} sent`),
    );
  }

  #tables(node) {
    const tables = this.#detail?.tables;
    if (!tables) {
      const why = this.#model.kind === 'agent' && !node.is_self
        ? 'The tables of this node are on its own page.'
        : 'This node does not tell its tables now.';
      return this.#model.kind === 'replay' ? [] : [h('p', { class: 'empty' }, why)];
    }
    const chip = ({ id }) => h('button', { type: 'button', class: 'chip', 'data-key': `leaf-${id}`, onclick: () => this.#model.select(id) }, this.#model.name(id));
    return [
      h('h3', { class: 'sub' }, 'Leaf set, counter-clockwise and clockwise'),
      h('div', { class: 'chips' }, [...tables.counter_clockwise].reverse().map(chip), h('b', {}, node.name), tables.clockwise.map(chip)),
      h('h3', { class: 'sub' }, 'Routing table: row = shared digits, column = next digit'),
      this.#cells(node, tables.cells),
    ];
  }

  #cells(node, cells) {
    const rows = Math.max(1, ...cells.map((cell) => cell.row + 1));
    const digits = [...'0123456789abcdef'];
    const find = (row, column) => cells.find((cell) => cell.row === row && cell.column === column);
    const cell = (row, column) => {
      const filled = find(row, column);
      if (filled) return h('td', { class: 'filled', title: this.#model.name(filled.id) }, h('span', {}, this.#model.name(filled.id).slice(0, 2)));
      const own = parseInt(node.id[row], 16) === column;
      return h('td', { class: own ? 'own' : '' }, h('span', {}, own ? '•' : ''));
    };
    return h('div', { class: 'table-wrap' }, h('table', { class: 'cells' },
      h('thead', {}, h('tr', {}, h('th', { scope: 'col' }, ''), digits.map((digit) => h('th', { scope: 'col' }, digit)))),
      h('tbody', {}, Array.from({ length: rows }, (_, row) => h('tr', {}, h('th', { scope: 'row' }, row), digits.map((_digit, column) => cell(row, column)))))));
  }
}
