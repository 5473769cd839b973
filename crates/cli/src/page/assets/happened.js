// What just happened: after each act the steps by which the services repair what was broken, each with the time it took.

import { at, h, ms, plain, show } from './dom.js';

const ACTS = new Set(['killed', 'revived', 'suspended', 'resumed', 'cut', 'healed']);

function letters(count) {
  return count === 1 ? '1 letter' : `${count} letters`;
}

/** What the steps ask about the group as it is now. */
class Group {
  constructor(model) {
    this.model = model;
    this.sections = model.sections;
    this.running = model.nodes.filter((node) => node.up && !node.suspended);
  }

  node(id) { return this.model.byId.get(id); }
  name(id) { return this.model.name(id); }
  get tokens() { return (this.sections.token?.tokens ?? []).filter((token) => token.holder); }
  get owners() { return [...new Set((this.sections.route?.probe?.owners ?? []).map(({ owner }) => owner))]; }
  get isRingRight() {
    const ring = this.sections.route?.ring;
    return Boolean(ring) && ring.of === this.running.length && ring.right === ring.of;
  }

  /** Whether all others take a node for dead. */
  isDeadForAll(id) {
    const seen = this.node(id)?.seen;
    return Boolean(seen) && seen.dead > 0 && seen.alive + seen.suspect === 0;
  }

  /** Whether everybody who runs takes everybody who runs on the same side for alive, and nobody else. */
  isAgreed() {
    return this.running.every((node) => {
      const beside = this.running.filter((other) => other.side === node.side).length - 1;
      return node.seen.alive === beside && node.seen.suspect === 0;
    });
  }

  /** Letters to a node that have not arrived. */
  open(id) {
    return (this.sections.mesh?.mail ?? []).filter((letter) => letter.to === id && !['delivered', 'cancelled', 'expired'].includes(letter.state));
  }
}

/**
 * The steps after an act: the service that takes it, what it waits for, and a function of the group and of the notes
 * that events left. It returns what has come true, or nothing.
 */
const STEPS = {
  killed: ({ id, name }) => [
    ['members', 'a probe must fail before anybody suspects it', (group, notes) => (notes.suspectedBy || group.node(id)?.state !== 'alive') && `suspected${notes.suspectedBy ? ` by ${notes.suspectedBy}` : ''}`],
    ['members', `${name} has some seconds to contradict`, (group) => group.isDeadForAll(id) && `dead for all ${group.running.length} others`],
    ['route', 'its neighbours must close the gap', (group) => group.isRingRight && `ring repaired: all ${group.running.length} nodes know the nodes beside them`],
    ['route', `messages to keys of ${name} need another owner`, (group, notes) => notes.around && `${notes.around.text}, a key of ${name}, reached ${group.name(notes.around.path.at(-1))} instead`],
    ['token', 'the token must go round without it', (group, notes) => (notes.restoredBy && `token was lost with ${name}; ${notes.restoredBy} restored it`) || (notes.passedAfterDeath && group.isDeadForAll(id) && `token goes round without ${name}`)],
    ['mesh', `the next letter to ${name} will wait`, (group) => {
      const open = group.open(id);
      const holders = [...new Set(open.flatMap((letter) => letter.custodians))].map((holder) => group.name(holder));
      return open.length > 0 && `${letters(open.length)} to ${name} wait${open.length === 1 ? 's' : ''}${holders.length > 0 ? `, held by ${holders.join(', ')}` : ' at the sender'}`;
    }],
  ],
  revived: ({ id, name, open }) => [
    ['members', 'it must refute that it is dead', (group) => group.node(id)?.up && group.isAgreed() && 'alive for all'],
    ['route', 'it must find its place on the ring', (group) => group.isRingRight && `in the ring again, between its neighbours`],
    ['token', 'the token will come to it', (group, notes) => notes.takers.has(name) && `${name} had the token again`],
    ['mesh', open > 0 ? `${letters(open)} must arrive` : 'no letter was waiting', (group) => (open === 0 ? 'no letter was waiting for it' : group.node(id)?.up && group.open(id).length === 0 && `${letters(open)} arrived`)],
  ],
  suspended: ({ id, name }) => [
    ['members', 'a probe must fail before anybody suspects it', (group, notes) => (notes.suspectedBy || group.node(id)?.state !== 'alive') && `suspected${notes.suspectedBy ? ` by ${notes.suspectedBy}` : ''}`],
    ['members', `${name} has some seconds to contradict`, (group) => group.isDeadForAll(id) && 'dead for all others, though it only sleeps'],
    ['route', 'its neighbours must close the gap', (group) => group.isRingRight && 'ring repaired without it'],
  ],
  resumed: () => [
    ['members', 'it must refute what the others say of it', (group) => group.isAgreed() && 'alive for all'],
    ['route', 'it must find its place on the ring', (group) => group.isRingRight && 'in the ring again'],
  ],
  cut: () => [
    ['members', 'each side must notice that the other is gone', (group) => group.isAgreed() && 'each side takes the other for dead'],
    ['route', 'each side must close its own ring', (group) => group.isRingRight && 'two rings: each side closed its own'],
    ['route', 'keys of the other side need an owner here', (group) => group.owners.length > 1 && `${group.sections.route.probe.text} has two owners: ${group.owners.map((id) => group.name(id)).join(' and ')}`],
    ['token', 'the side without the token must restore it', (group, notes) => group.tokens.length > 1 && `two tokens${notes.restoredBy ? `: ${notes.restoredBy} restored one` : ''}`],
  ],
  healed: () => [
    ['members', 'the sides must find each other again', (group) => group.isAgreed() && `all ${group.running.length} nodes are alive for all`],
    ['route', 'the two rings must become one', (group) => group.isRingRight && 'one ring: all nodes know the nodes beside them'],
    ['route', 'one owner must remain', (group) => group.owners.length === 1 && `${group.sections.route.probe.text} has one owner: ${group.name(group.owners[0])}`],
    ['token', 'the two tokens must merge', (group, notes) => group.tokens.length === 1 && (notes.mergedBy ? `one token: ${notes.mergedBy} merged the two` : notes.passed && group.isAgreed() && 'one token')],
  ],
};

export class Happened {
  #model;
  #act = null;
  #steps = [];
  #notes = {};

  constructor(model) {
    this.#model = model;
    model.on('news', (line) => this.#onNews(line));
    model.on('sections', () => this.#onSections());
    model.on('cleared', () => { this.#act = null; });
  }

  /** Whether nothing is still being repaired. */
  get isSettled() {
    return !this.#act || this.#steps.every((step) => step.text !== null);
  }

  #onNews(line) {
    if (line.protocol === 'demo' && ACTS.has(line.event)) this.#begin(line);
    if (!this.#act || line.at_micros < this.#act.at) return;
    const [notes, { id }] = [this.#notes, this.#act];
    const is = (protocol, event) => line.protocol === protocol && line.event === event;
    if (is('members', 'member_suspected') && line.id === id) notes.suspectedBy ??= line.node;
    else if (is('token', 'token_restored')) notes.restoredBy ??= line.node;
    else if (is('token', 'token_merged') && line.branches_merged) notes.mergedBy ??= line.node;
    else if (is('demo', 'message_routed') && line.home === id && line.path.at(-1) !== id) notes.around ??= line;
    else if (is('token', 'token_taken')) {
      notes.takers.add(line.node);
      notes.passed = true;
      if (this.#steps.some((step) => step.text?.startsWith('dead for'))) notes.passedAfterDeath = true;
      return;
    } else return;
    this.#onSections();
  }

  #begin({ event: kind, id, side, at_micros: at, isPast = false }) {
    const name = id ? this.#model.name(id) : '';
    const open = id ? new Group(this.#model).open(id).length : 0;
    this.#act = { kind, id, name, side, at, open, isPast };
    this.#notes = { takers: new Set() };
    this.#steps = STEPS[kind](this.#act).map(([service, waits, test]) => ({ service, waits, test, text: null, after: null }));
    // The sections are those from before the act until the next sample comes.
    this.#notes.isFresh = false;
  }

  #onSections() {
    const { sections, kind } = this.#model;
    at('happened').hidden = kind !== 'demo';
    if (kind !== 'demo') return;
    if (this.#act) {
      if (this.#isShown()) this.#notes.isFresh = true;
      if (this.#notes.isFresh) this.#take();
    }
    this.#draw(sections);
  }

  /** Whether the sections show that the act was done. */
  #isShown() {
    const { kind, id } = this.#act;
    const node = this.#model.byId.get(id);
    const isCut = Boolean(this.#model.sections.view?.is_cut);
    return {
      killed: () => node?.up === false,
      revived: () => Boolean(node?.up),
      suspended: () => Boolean(node?.suspended),
      resumed: () => node?.suspended === false,
      cut: () => isCut,
      healed: () => !isCut,
    }[kind]();
  }

  /** Looks which steps have come true. */
  #take() {
    const group = new Group(this.#model);
    for (const step of this.#steps) {
      const text = step.test(group, this.#notes);
      if (!text) continue;
      if (step.text === null && !this.#act.isPast) {
        step.after = Math.max(0, Date.now() * 1000 - this.#act.at) / 1000;
        at('happened-last').textContent = plain(text);
      }
      step.text = text;
    }
    // From now on the page sees when a step comes true.
    this.#act.isPast = false;
  }

  #draw(sections) {
    const act = this.#act;
    if (!act) {
      at('happened-act').textContent = '';
      show(at('steps'), ['idle', sections.view?.is_cut], () => [
        h('li', { class: 'invite' }, 'Nothing yet. Select a node on the ring and kill it, or cut the network in two: here you see what each service does about it.'),
      ]);
      return;
    }
    const acts = {
      killed: `${act.name} was killed, without a goodbye`,
      revived: `${act.name} was started again`,
      suspended: `${act.name} was suspended`,
      resumed: `${act.name} goes on`,
      cut: `the network was cut in two`,
      healed: 'the cut was healed',
    };
    at('happened-act').textContent = acts[act.kind];
    show(at('steps'), [act, this.#steps.map((step) => [step.text, step.after])], () => this.#steps.map((step) => h('li', { 'data-done': String(step.text !== null) },
      h('span', { class: 'mark', 'aria-hidden': 'true' }, step.text === null ? '…' : '✓'),
      h('span', { class: `tag of-${step.service}` }, step.service),
      h('span', { class: 'text' }, step.text ?? step.waits),
      h('span', { class: 'after' }, step.after === null ? '' : `after ${ms(step.after)}`))));
  }
}
