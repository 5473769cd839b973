// The controls of the demo, by mouse and by keyboard.

import { at, h, hops, ms, plain } from './dom.js';

export class Controls {
  #model;
  #feed;
  #ring;
  #box = at('controls');
  #buttons = {};
  #key;
  #to;
  #result;

  constructor(model, feed, ring) {
    [this.#model, this.#feed, this.#ring] = [model, feed, ring];
    this.#build();
    this.#keys();
    model.on('sections selection', () => this.#refresh());
  }

  /** Does something to a node. */
  async act(action, id = this.#model.selected, more = {}) {
    const name = this.#model.name(id);
    const done = { kill: 'was killed', revive: 'was started again', suspend: 'is suspended', resume: 'goes on' };
    await this.#try(() => this.#feed.post(`/v1/demo/nodes/${id}/${action}`, more), () => `${name} ${done[action]}.`);
  }

  /** Kills the next node that has its turn: the token is lost with it. Resolves to its id. */
  async killInTurn(more = {}) {
    this.#say('Waiting for the next turn.', false);
    const answer = await this.#try(() => this.#feed.post('/v1/demo/turn/kill', more), ({ name }) => `${name} was killed in its turn.`);
    if (answer) this.#model.select(answer.id);
    return answer?.id ?? null;
  }

  /** Cuts the ring between the selected half and the other. */
  async cut() {
    const { nodes, selected } = this.#model;
    const index = Math.max(0, nodes.findIndex((node) => node.id === selected));
    const half = Math.floor(nodes.length / 2);
    const names = Array.from({ length: half }, (_, step) => nodes[(index + step) % nodes.length].id);
    const side = names.map((id) => this.#model.name(id));
    await this.#try(() => this.#feed.post('/v1/demo/cut', { nodes: side }), () => `The network is cut between ${side.join(', ')} and the rest.`);
  }

  async heal() {
    await this.#try(() => this.#feed.post('/v1/demo/heal'), () => 'The network is whole again.');
  }

  /** Sends a message to the owner of a key. */
  async send(key = this.#key.value, from = this.#model.selected) {
    const told = (answer) => `${key} reached ${this.#model.name(answer.owner)} after ${hops(answer.path.length - 1)} in ${ms(answer.ms)}.`;
    await this.#try(() => this.#feed.post('/v1/demo/send', { from, key, text: 'hello from the page' }), told);
  }

  /** Sends mail to a node. */
  async mail(to = this.#to.value, from = this.#model.selected) {
    const told = () => `Mail from ${this.#model.name(from)} to ${this.#model.name(to)} is on its way.`;
    await this.#try(() => this.#feed.post('/v1/demo/send', { from, to, text: `mail from ${this.#model.name(from)}` }), told);
  }

  async #try(act, told) {
    try {
      const answer = await act();
      this.#say(told(answer), false);
      return answer;
    } catch (error) {
      this.#say(error.hint ? `${error.message}; ${error.hint}` : error.message, true);
      return null;
    }
  }

  #say(text, isBad) {
    this.#result.textContent = plain(text);
    this.#result.dataset.bad = isBad;
  }

  #build() {
    const button = (name, text, key, act) => {
      this.#buttons[name] = h('button', { type: 'button', id: `do-${name}`, 'aria-keyshortcuts': key, onclick: act }, text, ' ', h('kbd', {}, key));
      return this.#buttons[name];
    };
    this.#key = h('input', { id: 'send-key', value: 'users/42', 'aria-label': 'Key', maxlength: 200 });
    this.#to = h('select', { id: 'mail-to', 'aria-label': 'Recipient' });
    this.#result = h('p', { class: 'result', id: 'result', role: 'status' });
    this.#box.append(
      h('div', { class: 'row' }, h('span', { id: 'control-name' }, ''),
        button('kill', 'Kill', 'k', () => this.act('kill')), button('revive', 'Revive', 'r', () => this.act('revive')),
        button('suspend', 'Suspend', 's', () => this.act(this.#buttons.suspend.dataset.action))),
      h('div', { class: 'row' }, h('span', {}, 'token'), button('turn', 'Kill the next holder', 't', () => this.killInTurn())),
      h('div', { class: 'row' }, h('span', {}, 'network'),
        button('cut', 'Cut in two', 'c', () => this.cut()), button('heal', 'Heal', 'h', () => this.heal())),
      h('div', { class: 'row' }, h('span', {}, 'message to key'), this.#key, button('send', 'Send', 'm', () => this.send())),
      h('div', { class: 'row' }, h('span', {}, 'mail to'), this.#to, button('mail', 'Send mail', 'l', () => this.mail())),
      this.#result);
    this.#key.addEventListener('keydown', (event) => {
      if (event.key === 'Enter') this.send();
    });
  }

  #refresh() {
    const { nodes, selected, sections, byId } = this.#model;
    this.#box.hidden = !sections.view?.controls;
    if (this.#box.hidden) return;
    const node = byId.get(selected);
    at('control-name').textContent = plain(node?.name ?? '');
    const isUp = Boolean(node?.up);
    this.#buttons.kill.disabled = !isUp;
    this.#buttons.revive.disabled = isUp;
    this.#buttons.suspend.disabled = !isUp;
    const action = node?.suspended ? 'resume' : 'suspend';
    if (this.#buttons.suspend.dataset.action !== action) {
      this.#buttons.suspend.dataset.action = action;
      this.#buttons.suspend.firstChild.textContent = action === 'resume' ? 'Resume' : 'Suspend';
    }
    this.#buttons.heal.disabled = !sections.view.is_cut;
    this.#buttons.send.disabled = !isUp || node?.suspended;
    this.#buttons.mail.disabled = !isUp || node?.suspended;
    if (this.#to.childElementCount !== nodes.length) {
      const last = this.#to.value || nodes[Math.floor(nodes.length / 2)]?.id;
      this.#to.replaceChildren(...nodes.map(({ id, name }) => h('option', { value: id }, name)));
      this.#to.value = last;
    }
  }

  #keys() {
    const press = (name) => () => {
      if (!this.#box.hidden && !this.#buttons[name].disabled) this.#buttons[name].click();
    };
    const keys = {
      k: ['kill the selected node', press('kill')],
      t: ['kill the next node that has its turn, and the token with it', press('turn')],
      r: ['revive it', press('revive')],
      s: ['suspend or resume it', press('suspend')],
      c: ['cut the network in two, from the selected node on', press('cut')],
      h: ['heal the cut', press('heal')],
      m: ['send a message to the key', press('send')],
      l: ['send mail', press('mail')],
      n: ['select the next node', () => this.#ring.step(1)],
      p: ['select the node before', () => this.#ring.step(-1)],
      '?': ['show the keys', () => showKeys()],
    };
    // An agent and a recorded run have no controls, so that their keys are fewer.
    const showKeys = () => {
      const isReplay = this.#model.kind === 'replay';
      const shown = Object.entries(keys).filter(([key]) => !this.#box.hidden || 'np?'.includes(key)).map(([key, [text]]) => [[key], text]);
      shown.push([['←', '→'], 'go round the ring, when a node has the focus'], ...(isReplay ? [[['Space'], 'play or pause']] : []));
      at('keys-list').replaceChildren(...shown.flatMap(([names, text]) => [h('dt', {}, names.map((name) => [h('kbd', {}, name), ' '])), h('dd', {}, text)]));
      at('keys').showModal();
    };
    document.addEventListener('keydown', (event) => {
      const isTyping = event.target.matches?.('input:not([type="checkbox"]):not([type="range"]), select, textarea') || document.querySelector('dialog[open]');
      if (isTyping || event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
      event.preventDefault();
      keys[event.key][1]();
    });
    at('help').addEventListener('click', showKeys);
  }
}
