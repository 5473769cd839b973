// A recorded simulation: plays the lines of a trace into the model, with a time line, a speed and a mark for each fault.

import { at, h } from './dom.js';
import { fault } from './fault.js';

const SPEEDS = [0.25, 0.5, 1, 2, 5, 10, 50];
const SHOW_EVERY_MS = 120;
const NEWS_PER_FRAME = 20;
const MAIL_MAX = 500;
const FAULT_SHOWN_MICROS = 10e6;

/** The ring id of an address in the mesh. */
function idOf(nid) {
  return String(nid).slice(0, 32);
}

/** What the lines up to a moment say of all hosts. */
class World {
  #counts = new Map();

  constructor(trace) {
    this.hosts = trace.hosts.map((host) => ({ ...host, up: false, suspended: false, side: 0 }));
    this.byName = new Map(this.hosts.map((host) => [host.name, host]));
    this.byId = new Map(this.hosts.map((host) => [host.id, host]));
    /** For each host: how each other host sees it. */
    this.views = new Map(this.hosts.map((host) => [host.id, new Map()]));
    this.links = new Set();
    this.tokens = new Map();
    this.hostIds = {};
    this.edges = [];
    this.isCut = false;
    this.mail = new Map();
    // Receipts travel like letters; only letters are received.
    trace.letters ??= new Set(trace.lines.filter((line) => line.protocol === 'mesh' && (line.event === 'message_received' || line.event === 'message_state_changed')).map((line) => line.key));
    this.letters = trace.letters;
    this.lastFault = null;
  }

  take(line) {
    const host = this.byName.get(line.node);
    const call = `on_${line.protocol}`;
    this[call]?.(line, host);
  }

  on_host(line, host) {
    if (!host) return;
    host.up = line.event === 'start';
    this.#forgetCounts();
  }

  on_demo(line) {
    if (line.event !== 'fault') return;
    const { kind, named, text } = fault(String(line.text));
    const inside = new Set(named.map((name) => this.byName.get(name)).filter(Boolean));
    this.lastFault = { text, at: line.at_micros };
    if (kind === 'Partition') {
      this.hosts.forEach((host) => { host.side = inside.has(host) ? 1 : 0; });
      this.isCut = true;
    } else if (kind === 'Heal' || kind === 'Calm') {
      this.hosts.forEach((host) => { host.side = 0; });
      this.isCut = false;
      if (kind === 'Calm') this.hosts.forEach((host) => { host.suspended = false; });
    } else if (kind === 'Crash' || kind === 'Die') {
      inside.forEach((host) => { host.up = false; host.suspended = false; });
      this.#forgetCounts();
    } else if (kind === 'Suspend' || kind === 'Sleep') {
      inside.forEach((host) => { host.suspended = true; });
    } else if (kind === 'Resume') {
      inside.forEach((host) => { host.suspended = false; });
    }
  }

  on_members(line, host) {
    const states = { member_joined: 'alive', member_recovered: 'alive', member_suspected: 'suspect', member_died: 'dead', member_left: 'left' };
    const state = states[line.event];
    if (!state || !host || host.id === line.id) return;
    this.views.get(line.id)?.set(host.id, state);
    this.#counts.delete(line.id);
  }

  on_mesh(line, host) {
    if (!host) return;
    if (line.event === 'message_forwarded') this.#forwarded(line);
    if (line.event === 'message_received' && this.mail.has(line.key)) Object.assign(this.mail.get(line.key), { state: 'delivered', custodians: [] });
    if (!line.nid) return;
    const other = idOf(line.nid);
    const link = host.id < other ? `${host.id} ${other}` : `${other} ${host.id}`;
    if (line.event === 'peer_connected') this.links.add(link);
    else if (line.event === 'peer_disconnected') this.links.delete(link);
  }

  /** A letter goes from node to node; those that have it and are not its recipient hold it. */
  #forwarded({ key, sender, recipient, to, at_micros: at }) {
    if (!this.letters.has(key)) return;
    const [from, end, next] = [idOf(sender), idOf(recipient), to.map(idOf)];
    const letter = this.mail.get(key) ?? { from, to: end, state: 'under_way', why: null, custodians: [], sent_at: at };
    if (letter.state !== 'delivered') letter.custodians = [...new Set([...letter.custodians, ...next.filter((id) => id !== end)])];
    this.mail.set(key, letter);
    if (this.mail.size > MAIL_MAX) this.mail.delete(this.mail.keys().next().value);
  }

  on_token(line, host) {
    if (!host) return;
    if (line.event === 'started' && line.host_id) this.hostIds[String(line.host_id)] = host.id;
    if (line.event === 'token_taken') this.tokens.set(line.token_id, { token_id: line.token_id, holder: host.id, fence: line.fence, at: line.at_micros });
    if (line.event === 'token_restored') this.edges.push({ kind: 'restore', from: line.from, to: line.token_id, fence: line.at_micros, by: host.name });
    if (line.event === 'token_merged' && line.branches_merged) this.edges.push({ kind: 'merge', from: line.own, to: line.received, fence: line.at_micros, by: host.name });
  }

  #forgetCounts() {
    this.#counts.clear();
  }

  /** How many hosts that run see a host in which state; counted again only after a change. */
  #seen(id) {
    const known = this.#counts.get(id);
    if (known) return known;
    const seen = { alive: 0, suspect: 0, dead: 0 };
    for (const [by, state] of this.views.get(id)) {
      if (this.byId.get(by)?.up) seen[state === 'left' ? 'dead' : state] += 1;
    }
    this.#counts.set(id, seen);
    return seen;
  }

  sections(now) {
    const nodes = this.hosts.map((host) => {
      const seen = this.#seen(host.id);
      const state = seen.dead > seen.alive && seen.dead >= seen.suspect ? 'dead' : seen.suspect > seen.alive ? 'suspect' : 'alive';
      return { id: host.id, name: host.name, addr: host.addr, state, up: host.up, suspended: host.suspended, side: host.side, seen, rtt_ms: null, tags: {} };
    });
    // A token that nobody took for a while was lost or merged.
    const tokens = [...this.tokens.values()].filter((token) => now - token.at < 5e6);
    return {
      nodes,
      mesh: { links: [...this.links].map((link) => link.split(' ')), queues: {}, mail: [...this.mail.values()].sort((a, b) => (a.state === 'delivered') - (b.state === 'delivered') || b.sent_at - a.sent_at).slice(0, 12) },
      token: { tokens, hosts: this.hostIds, waiting: [], loop_ms: null, edges: this.edges.slice(-12) },
    };
  }
}

export class Replay {
  #model;
  #trace;
  #world;
  #now = 0;
  #next = 0;
  #speed = 1;
  #isPlaying = true;
  #last = null;
  #shownAt = 0;
  #parts = {};

  constructor(model, trace) {
    [this.#model, this.#trace] = [model, trace];
    const protocols = new Set(trace.lines.map((line) => line.protocol));
    const services = ['members', 'route', 'token', 'mesh'].filter((name) => protocols.has(name));
    model.apply({ view: { ...model.sections.view, services } });
    this.#build();
    this.seek(0);
    requestAnimationFrame((time) => this.#frame(time));
  }

  /** Goes to a moment: everything before it is taken again, without being drawn. */
  seek(micros) {
    this.#world = new World(this.#trace);
    this.#now = Math.max(0, Math.min(micros, this.#trace.end_micros));
    this.#next = 0;
    this.#model.clear();
    const lines = this.#trace.lines;
    while (this.#next < lines.length && lines[this.#next].at_micros <= this.#now) {
      this.#world.take(lines[this.#next]);
      this.#next += 1;
    }
    lines.slice(Math.max(0, this.#next - 60), this.#next).filter((line) => line.protocol !== 'host').forEach((line) => this.#model.push(line));
    this.#show();
  }

  #frame(time) {
    const passed = this.#last === null ? 0 : time - this.#last;
    this.#last = time;
    if (this.#isPlaying && this.#now < this.#trace.end_micros) {
      this.#now = Math.min(this.#trace.end_micros, this.#now + passed * 1000 * this.#speed);
      this.#advance();
    }
    if (time - this.#shownAt >= SHOW_EVERY_MS && this.#isPlaying) {
      this.#shownAt = time;
      this.#show();
    }
    requestAnimationFrame((next) => this.#frame(next));
  }

  #advance() {
    const lines = this.#trace.lines;
    let told = 0;
    while (this.#next < lines.length && lines[this.#next].at_micros <= this.#now) {
      const line = lines[this.#next];
      this.#next += 1;
      this.#world.take(line);
      // A frame draws only so much; the state is right all the same.
      if (line.protocol !== 'host' && told < NEWS_PER_FRAME) {
        told += 1;
        this.#model.push(line);
      }
    }
  }

  #show() {
    const sections = this.#world.sections(this.#now);
    const view = { ...this.#model.sections.view, is_cut: this.#world.isCut };
    this.#model.apply({ ...sections, view });
    this.#parts.slider.value = String(Math.round(this.#now / 1000));
    const seconds = (micros) => `${(micros / 1e6).toFixed(2)} s`;
    this.#parts.time.textContent = `${seconds(this.#now)} of ${seconds(this.#trace.end_micros)}`;
    this.#parts.slider.setAttribute('aria-valuetext', seconds(this.#now));
    const last = this.#world.lastFault;
    const isNew = last && this.#now - last.at < FAULT_SHOWN_MICROS * Math.max(1, this.#speed / 5);
    const caption = isNew ? `${seconds(last.at)}: ${last.text}` : '';
    if (at('caption').textContent !== caption) at('caption').textContent = caption;
  }

  #build() {
    const end = Math.max(1, this.#trace.end_micros);
    const parts = this.#parts;
    parts.slider = h('input', {
      type: 'range', id: 'replay-time', min: 0, max: Math.round(end / 1000), step: 1, value: 0, 'aria-label': 'Time',
      oninput: () => this.seek(Number(parts.slider.value) * 1000),
    });
    parts.play = h('button', { type: 'button', id: 'replay-play', onclick: () => this.#toggle() }, 'Pause');
    parts.speed = h('select', { id: 'replay-speed', 'aria-label': 'Speed', onchange: () => { this.#speed = Number(parts.speed.value); } },
      SPEEDS.map((speed) => h('option', { value: speed, selected: speed === 1 }, `${speed}×`)));
    parts.time = h('span', { class: 'time', id: 'replay-now' });
    const faults = this.#trace.lines.filter((line) => line.event === 'fault');
    const marks = faults.map((line) => {
      const text = `${(line.at_micros / 1e6).toFixed(1)} s: ${fault(line.text).text}`;
      const mark = h('button', { type: 'button', class: 'mark', title: text, 'aria-label': text, onclick: () => this.seek(line.at_micros) });
      mark.style.left = `${(line.at_micros / end) * 100}%`;
      return mark;
    });
    at('charts').hidden = true;
    const box = at('timeline');
    box.hidden = false;
    box.append(
      h('div', { class: 'row' }, parts.play, parts.speed, parts.time, h('span', { class: 'counts' }, faults.length === 1 ? '1 fault is marked' : `${faults.length} faults are marked`)),
      h('div', {}, h('div', { class: 'marks' }, marks), parts.slider),
      h('p', { class: 'empty', hidden: !this.#trace.is_cut_off }, 'The trace is longer than the page plays.'));
    document.addEventListener('keydown', (event) => {
      if (event.key === ' ' && event.target === document.body) {
        event.preventDefault();
        this.#toggle();
      }
    });
  }

  #toggle() {
    if (this.#now >= this.#trace.end_micros) this.seek(0);
    this.#isPlaying = !this.#isPlaying;
    this.#parts.play.textContent = this.#isPlaying ? 'Pause' : 'Play';
    this.#show();
  }
}
