// The page: makes its parts and connects them.

import { at } from './dom.js';
import { Charts } from './charts.js';
import { Controls } from './controls.js';
import { Feed } from './feed.js';
import { Happened } from './happened.js';
import { Inspector } from './inspector.js';
import { Log } from './log.js';
import { Model } from './model.js';
import { Replay } from './replay.js';
import { Ring } from './ring.js';
import { Services } from './services.js';
import { Story } from './story.js';

const CONNECTIONS = { connecting: 'connecting', live: 'live', replay: 'recorded', lost: 'connection lost, trying again', locked: 'locked' };

/** Asks for the access token; it is kept in memory only. */
function askToken(problem) {
  const dialog = at('access');
  const input = at('access-token');
  at('access-problem').textContent = problem;
  input.value = '';
  if (!dialog.open) dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener('close', () => resolve(input.value), { once: true });
  });
}

function showConnection(model) {
  model.on('connection', (state) => {
    const shown = at('connection');
    shown.dataset.state = state;
    shown.textContent = CONNECTIONS[state] ?? state;
  });
  model.on('sections', () => {
    const view = model.sections.view;
    if (!view) return;
    const texts = {
      demo: `${model.nodes.length} real nodes on this machine, no server among them`,
      agent: `as ${view.name} sees it`,
      replay: `${view.name}, replayed`,
    };
    at('about').textContent = texts[view.kind] ?? '';
    document.title = `annulus · ${view.kind === 'agent' ? view.name : view.kind}`;
  });
}

/** System, light or dark. The choice is kept for this browser if it allows that. */
function themes() {
  const order = ['system', 'light', 'dark'];
  const button = at('theme');
  const read = () => {
    try {
      return localStorage.getItem('annulus-theme') ?? 'system';
    } catch {
      return 'system';
    }
  };
  const apply = (theme) => {
    if (theme === 'system') delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    button.textContent = `Theme: ${theme}`;
    button.dataset.theme = theme;
  };
  apply(order.includes(read()) ? read() : 'system');
  button.addEventListener('click', () => {
    const next = order[(order.indexOf(button.dataset.theme) + 1) % order.length];
    apply(next);
    try {
      localStorage.setItem('annulus-theme', next);
    } catch {
      // It holds for this visit.
    }
  });
}

const model = new Model();
const feed = new Feed(model, askToken);
themes();
showConnection(model);
const ring = new Ring(model);
new Inspector(model, feed, ring);
new Services(model);
const happened = new Happened(model);
new Charts(model);
new Log(model);
const controls = new Controls(model, feed, ring);
new Story(model, controls, happened);
feed.onReplay = (trace) => new Replay(model, trace);
feed.run();
