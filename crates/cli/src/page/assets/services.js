// One panel for each service: its figures, and what it is doing now.

import { at, h, hops, ms, show } from './dom.js';
import { genealogy } from './graph.js';
import { stateWord } from './inspector.js';

const MAIL_SHOWN = 5;
const MESSAGES_SHOWN = 4;
const NODES_SHOWN = 8;
const TOKEN_GONE_MS = 1200;

const WHY = { no_peer: 'its sender has no peer', peers_full: 'the peers have no room', being_sent: 'being sent' };

function figure(value, label) {
  return h('div', { class: 'figure' }, h('b', {}, value), h('span', {}, label));
}

/** The last digits of a fence: it begins at the clock of the first holder. */
function short(fence) {
  return fence > 1e7 ? `…${String(fence).slice(-6)}` : fence;
}

/** How many others see a node in which state. */
function seenBy(seen) {
  if (!seen) return '';
  return ['alive', 'suspect', 'dead'].filter((state) => seen[state] > 0).map((state) => `${state} for ${seen[state]}`).join(', ');
}

/** How far the lists of the nodes agree, where all of them are known. */
function agreement(nodes) {
  const alive = nodes.map((node) => node.seen?.alive ?? null);
  if (alive.includes(null)) return 'Nobody is suspected or dead.';
  const [least, most, others] = [Math.min(...alive), Math.max(...alive), nodes.length - 1];
  if (least === others) return `Each of the ${nodes.length} nodes has all others in its list.`;
  return `A node is alive for ${least === most ? least : `${least} to ${most}`} of ${others} others.`;
}

function body(id) {
  return document.querySelector(`#${id} .body`);
}

export class Services {
  #model;
  #messages = [];
  #routed = { delivered: 0, failed: 0 };
  #tokens = { restored: 0, merged: 0 };
  #turn = null;
  #held = { count: 0, at: 0 };

  constructor(model) {
    this.#model = model;
    model.on('sections', (changed) => this.#draw(changed));
    model.on('selection', () => this.#draw({ nodes: true }));
    model.on('news', (line) => this.#onNews(line));
    model.on('cleared', () => {
      this.#messages = [];
      this.#routed = { delivered: 0, failed: 0 };
      this.#tokens = { restored: 0, merged: 0 };
    });
  }

  #draw(changed) {
    const services = this.#model.sections.view?.services;
    if (changed.view && services) {
      for (const name of ['members', 'route', 'token', 'mesh']) at(name).hidden = !services.includes(name);
    }
    if (changed.nodes) this.#drawMembers();
    if (changed.route || changed.nodes) this.#drawRoute();
    if (changed.token || changed.nodes) this.#drawToken();
    if (changed.mesh || changed.nodes) this.#drawMesh();
  }

  #onNews(line) {
    const is = (protocol, event) => line.protocol === protocol && line.event === event;
    if (line.isPast) return;
    if (is('demo', 'message_routed')) {
      this.#routed.delivered += 1;
      this.#messages.unshift({ from: line.from, text: line.text, path: line.path, ms: line.ms });
    } else if (is('demo', 'message_failed')) {
      this.#routed.failed += 1;
      this.#messages.unshift({ from: line.from, text: line.text, why: line.why });
    } else if (is('route', 'delivered')) {
      this.#routed.delivered += 1;
      if (this.#model.kind === 'demo') return;
      const [from, to] = [line.origin?.id ?? line.origin, this.#model.byName.get(line.node)?.id];
      this.#messages.unshift({ from, text: `${String(line.key).slice(0, 8)}…`, path: from === to ? [to] : [from, to], hops: line.hops });
    } else if (is('token', 'token_taken')) {
      this.#held = { count: Math.max(1, this.#held.count), at: performance.now() };
      return;
    } else if (is('token', 'token_restored')) {
      this.#tokens.restored += 1;
      return;
    } else if (is('token', 'token_merged') && line.branches_merged) {
      this.#tokens.merged += 1;
      return;
    } else if (is('demo', 'turn_began')) {
      this.#turn = { id: line.id, fence: line.fence };
      this.#drawToken();
      return;
    } else if (is('demo', 'turn_ended')) {
      if (this.#turn?.fence === line.fence) this.#turn = null;
      this.#drawToken();
      return;
    } else {
      return;
    }
    this.#messages.length = Math.min(this.#messages.length, MESSAGES_SHOWN);
    this.#drawRoute();
  }

  #drawMembers() {
    const model = this.#model;
    const { nodes, selected } = model;
    const count = (state) => nodes.filter((node) => model.stateOf(node) === state).length;
    at('counts').textContent = [`${nodes.length} nodes`, ...['suspect', 'dead', 'killed', 'still', 'left'].map((state) => [count(state), state === 'still' ? 'suspended' : state]).filter(([n]) => n > 0).map(([n, word]) => `${n} ${word}`)].join(' · ');
    // The living are on the ring; those that are not alive are listed.
    const listed = nodes.filter((node) => model.stateOf(node) !== 'alive').slice(0, NODES_SHOWN);
    const rtts = nodes.map((node) => node.rtt_ms).filter((value) => value > 0).sort((a, b) => a - b);
    const rtt = rtts[Math.floor(rtts.length / 2)] ?? 0;
    const rows = listed.map((node) => [node.id, node.name, model.stateOf(node), seenBy(node.seen), node.id === selected]);
    show(body('members'), [rows, agreement(nodes), count('alive'), ms(rtt)], () => [
      h('div', { class: 'figures' }, figure(count('alive'), 'alive'), figure(count('suspect'), 'suspect'), figure(count('dead') + count('left'), 'dead or left'), rtt > 0 && figure(ms(rtt), 'round trip')),
      h('ul', { class: 'rows' }, rows.map(([id, name, state, seen, isSelected]) => h('li', {},
        h('button', { type: 'button', class: 'chip', 'data-key': `member-${id}`, 'aria-pressed': isSelected ? 'true' : 'false', onclick: () => model.select(id) }, name),
        h('span', { class: 'what' }, stateWord(state)), h('span', { class: 'how' }, seen)))),
      rows.length === 0 && h('p', { class: 'empty' }, agreement(nodes)),
    ]);
  }

  #drawRoute() {
    const model = this.#model;
    const owners = model.sections.route?.probe?.owners ?? [];
    const probe = model.sections.route?.probe;
    const names = [...new Set(owners.map(({ owner }) => model.name(owner)))];
    show(body('route'), [this.#messages, this.#routed, names, probe?.text], () => [
      h('div', { class: 'figures' },
        figure(this.#routed.delivered, 'delivered'),
        figure(this.#routed.failed, 'failed'),
        probe && figure(names.join(' and ') || '–', names.length > 1 ? `two owners of ${probe.text}` : `owns ${probe.text}`)),
      h('ul', { class: 'rows' }, this.#messages.map((message) => h('li', {},
        h('span', { class: 'what' }, message.path ? `${message.text}: ${message.path.map((id) => model.name(id)).join(' → ')}` : `${message.text} from ${model.name(message.from)}: ${message.why}`),
        h('span', { class: 'how' }, message.path ? `${hops(message.hops ?? message.path.length - 1)}${message.ms === undefined ? '' : `, ${ms(message.ms)}`}` : 'failed')))),
      this.#messages.length === 0 && h('p', { class: 'empty' }, 'No message yet.'),
    ]);
  }

  #drawToken() {
    const model = this.#model;
    const token = model.sections.token;
    if (!token) return;
    const waiting = (token.waiting ?? []).filter((id) => id !== this.#turn?.id).map((id) => model.name(id));
    const tokens = this.#count(token);
    const key = [waiting, tokens, token.edges, this.#turn, this.#tokens, Math.round((token.loop_ms ?? 0) / 100)];
    show(body('token'), key, () => [
      h('div', { class: 'figures' },
        figure(tokens, tokens === 1 ? 'token' : 'tokens'),
        token.loop_ms !== null && figure(ms(token.loop_ms), 'once round'),
        model.kind === 'demo' && figure(this.#turn ? model.name(this.#turn.id) : '–', this.#turn ? `has its turn, fence ${short(this.#turn.fence)}` : 'nobody has a turn')),
      model.kind === 'demo' && h('p', { class: 'empty' }, waiting.length > 0 ? `Waiting for a turn: ${waiting.join(', ')}` : 'Nobody waits for a turn.'),
      h('h3', { class: 'sub' }, 'Splits and merges'),
      genealogy(model, token),
    ]);
  }

  /** How many tokens there are. One that is between two nodes has no holder for a moment; only a longer gap is a loss. */
  #count(token) {
    const count = (token.tokens ?? []).filter((item) => item.holder || this.#model.kind !== 'demo').length;
    if (count > 0 || performance.now() - this.#held.at > TOKEN_GONE_MS) this.#held = { count, at: performance.now() };
    return this.#held.count;
  }

  #drawMesh() {
    const model = this.#model;
    const mesh = model.sections.mesh;
    if (!mesh) return;
    const waiting = Object.values(mesh.queues ?? {}).reduce((sum, queue) => sum + queue.waiting, 0);
    const mail = (mesh.mail ?? []).slice(0, MAIL_SHOWN);
    const line = (item) => {
      if (item.state === 'delivered') return 'delivered';
      const custody = item.custodians.length > 0 ? `, held by ${item.custodians.map((id) => model.name(id)).join(', ')}` : '';
      if (item.why === 'recipient_away') return `waits${custody}`;
      return `${item.state.replaceAll('_', ' ')}${item.why ? `: ${WHY[item.why] ?? item.why}` : ''}${custody}`;
    };
    const key = [mesh.links?.length, waiting, mail, model.nodes.map((node) => node.name)];
    show(body('mesh'), key, () => [
      h('div', { class: 'figures' }, figure(mesh.links?.length ?? 0, 'links'), figure(waiting, model.kind === 'demo' ? 'copies wait' : 'messages wait')),
      h('ul', { class: 'rows' }, mail.map((item) => h('li', {},
        h('span', { class: 'what' }, `${model.name(item.from)} → ${model.name(item.to)}`),
        h('span', { class: 'how' }, line(item))))),
      mail.length === 0 && h('p', { class: 'empty' }, 'No mail yet.'),
    ]);
  }
}
