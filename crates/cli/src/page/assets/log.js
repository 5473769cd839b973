// The event log. What many nodes see is one line; filters by service and by text.

import { at, clock, h, hops } from './dom.js';
import { fault } from './fault.js';

const LINES_MAX = 160;
const TOGETHER_MICROS = 15e6;

const SERVICES = ['members', 'route', 'token', 'mesh', 'demo'];

/** Filters with another name. Traffic is what the load of the demo does all the time: in the demo it is hidden at first. */
const LABELS = { demo: 'actions' };
const TRAFFIC = new Set(['message_routed', 'mail_sent', 'message_state_changed', 'message_confirmed', 'delivered']);

/** The service that an event of the demo belongs to; the others are actions. */
const DEMO = { message_routed: 'route', message_failed: 'route', mail_sent: 'mesh' };

/** Events that come many times a second and are drawn elsewhere. */
const SILENT = new Set([
  'token_taken', 'token_passed', 'turn_began', 'turn_ended', 'state_entered', 'known_nodes_changed', 'leaf_set_changed',
  'message_forwarded', 'connection_broken', 'member_updated', 'started', 'token_released', 'restore_denied', 'event', 'loop_slow', 'renew_raised',
]);

/** What an event says, its tone, and the subject by which equal ones are told together. */
function tell(line, model) {
  const name = (id) => model.name(id);
  const nid = (value) => name(String(value ?? '').slice(0, 32));
  const contact = (value) => name(value?.id ?? value);
  const by = line.node;
  const sentences = {
    members: {
      member_joined: () => ['good', `${name(line.id)} is alive`],
      member_suspected: () => ['warn', `${name(line.id)} is suspected`],
      member_recovered: () => ['good', `${name(line.id)} answers again`],
      member_died: () => ['bad', `${name(line.id)} is dead`],
      member_left: () => ['', `${name(line.id)} said goodbye`],
      member_forgotten: () => ['', `${name(line.id)} is forgotten`],
      refuted: () => ['good', `${by} contradicted a suspicion`],
      user_received: () => ['', 'an event of a user arrived'],
      event_received: () => ['', `${name(line.from)} sent the event ${line.name}: ${line.payload ?? ''}`],
    },
    route: {
      joined: () => ['good', `${by} joined the ring of route`],
      join_failed: () => ['warn', `${by} could not join the ring, try ${line.tries}`],
      delivered: () => ['', `a message from ${contact(line.origin)} arrived at ${by} after ${hops(line.hops)}`],
      peer_failed: () => ['warn', `route goes around ${contact(line.contact)}`],
      peer_left: () => ['', `${contact(line.contact)} left the ring of route`],
    },
    token: {
      token_restored: () => ['warn', `${by} restored the token as ${line.token_id}`],
      token_merged: () => ['good', line.branches_merged ? `${by} merged two tokens into ${line.received}` : `the ring goes on with the token ${line.received}`],
      token_dropped: () => ['', `${by} gave the token up: ${line.reason}`],
      token_lost: () => ['bad', `${by} lost its turn: ${line.reason}`],
      pass_failed: () => ['warn', `${by} could not pass the token on`],
      node_added: () => ['', `${by} added a node to the ring of token`],
    },
    mesh: {
      peer_connected: () => ['', `the link to ${nid(line.nid)} is up`],
      peer_disconnected: () => ['', `the link to ${nid(line.nid)} is lost`],
      message_received: () => ['good', `mail from ${nid(line.from)} arrived at ${by}`],
      message_state_changed: () => ['', `mail ${line.number} of ${by} is ${String(line.state).replaceAll('_', ' ')}`],
      message_confirmed: () => ['good', `${nid(line.by)} confirmed mail ${line.number} of ${by}`],
    },
    demo: {
      ready: () => ['good', `all nodes know each other after ${(line.took_ms / 1000).toFixed(1)} s`],
      killed: () => ['bad', `${name(line.id)} was killed`],
      revived: () => ['good', `${name(line.id)} was started again`],
      suspended: () => ['warn', `${name(line.id)} is suspended`],
      resumed: () => ['good', `${name(line.id)} goes on`],
      cut: () => ['bad', `the network is cut between ${line.side.map(name).join(', ')} and the rest`],
      healed: () => ['good', 'the network is whole again'],
      message_routed: () => ['', `${line.text}: ${line.path.map(name).join(' → ')}, “${line.message}”`],
      message_failed: () => ['bad', `${line.text} from ${name(line.from)} was not delivered: ${line.why}`],
      mail_sent: () => ['', `${name(line.from)} sent mail to ${name(line.to)}: ${line.text}`],
      fault: () => [/^(Heal|Calm|Start|Resume)/.test(line.text) ? 'good' : 'bad', fault(line.text).text],
    },
  };
  const made = sentences[line.protocol]?.[line.event];
  if (made) return made();
  const word = String(line.event).replaceAll('_', ' ');
  return ['', `${by}: ${word}`];
}

export class Log {
  #model;
  #list = at('lines');
  #lines = [];
  #wanted = new Set([...SERVICES, 'traffic']);
  #text = '';

  constructor(model) {
    this.#model = model;
    this.#drawFilters();
    model.on('news', (line) => this.#push(line));
    model.on('cleared', () => {
      this.#lines = [];
      this.#list.replaceChildren();
    });
  }

  #drawFilters() {
    const boxes = [...SERVICES, 'traffic'].map((name) => h('label', { id: `filter-${name}` }, h('input', {
      type: 'checkbox', checked: true, onchange: (event) => {
        if (event.target.checked) this.#wanted.add(name);
        else this.#wanted.delete(name);
        this.#filter();
      },
    }), LABELS[name] ?? name));
    const search = h('input', {
      type: 'search', placeholder: 'contains…', 'aria-label': 'Only events that contain', oninput: (event) => {
        this.#text = event.target.value.toLowerCase();
        this.#filter();
      },
    });
    at('filters').append(...boxes, search);
    let kind = null;
    // An agent has no actions; those of a recorded run are its faults.
    this.#model.on('sections', () => {
      if (kind === this.#model.kind) return;
      kind = this.#model.kind;
      if (kind === 'demo') at('filter-traffic').firstChild.click();
      const label = at('filter-demo');
      label.hidden = this.#model.kind === 'agent';
      label.lastChild.textContent = this.#model.kind === 'replay' ? 'faults' : 'actions';
    });
  }

  #push(line) {
    const protocol = line.protocol === 'turns' ? 'token' : line.protocol;
    const service = (protocol === 'demo' && DEMO[line.event]) || protocol;
    if (SILENT.has(line.event) || !SERVICES.includes(service)) return;
    const isDelivery = service === 'route' && line.event === 'delivered';
    // The demo tells of its own messages with their whole path.
    if (isDelivery && this.#model.kind === 'demo') return;
    const [tone, text] = tell(line, this.#model);
    const isDemoMessage = line.event === 'message_routed' || isDelivery;
    const known = this.#lines.find((other) => other.text === text && other.service === service && line.at_micros - other.at < TOGETHER_MICROS);
    if (known && !isDemoMessage) {
      known.nodes.add(line.node);
      known.count.textContent = known.nodes.size > 1 ? ` (${known.nodes.size} nodes)` : '';
      return;
    }
    const count = h('span', { class: 'of' });
    const time = this.#model.kind === 'replay' ? `${(line.at_micros / 1e6).toFixed(2)} s` : clock(line.at_micros);
    const element = h('li', { 'data-tone': tone }, h('time', {}, time), h('span', { class: 'of' }, service !== 'demo' ? service : this.#model.kind === 'replay' ? 'fault' : 'action'), h('span', { class: 'text' }, text, count));
    const isTraffic = TRAFFIC.has(line.event);
    const entry = { text, service, isTraffic, at: line.at_micros, nodes: new Set([line.node]), count, element };
    this.#lines.unshift(entry);
    element.hidden = !this.#isWanted(entry);
    this.#list.prepend(element);
    // Traffic must not push out what is rare.
    const old = this.#lines.filter((other) => other.isTraffic === isTraffic)[LINES_MAX];
    if (old) {
      old.element.remove();
      this.#lines.splice(this.#lines.indexOf(old), 1);
    }
  }

  #isWanted({ service, text, isTraffic }) {
    return this.#wanted.has(service) && (!isTraffic || this.#wanted.has('traffic')) && text.toLowerCase().includes(this.#text);
  }

  #filter() {
    for (const entry of this.#lines) entry.element.hidden = !this.#isWanted(entry);
  }
}
