/** The event stream of a browser, resumed after a disconnect at the last known cursor. */

import { ApiError, send } from "./client";
import * as session from "./session";
import type { Event } from "./types";

export type StreamState = "live" | "reconnecting" | "off";

export interface StreamMessage {
  id?: string;
  event?: string;
  data?: string;
}

/** Split server-sent events into messages; a message can arrive in any number of pieces. */
export class MessageParser {
  private rest = "";

  push(text: string): StreamMessage[] {
    const parts = (this.rest + text).split("\n\n");
    this.rest = parts.pop() ?? "";
    return parts.map(parseMessage);
  }
}

function parseMessage(block: string): StreamMessage {
  const message: StreamMessage = {};
  for (const line of block.split("\n")) {
    const colon = line.indexOf(":");
    if (colon <= 0) continue;
    const value = line.slice(colon + 1).replace(/^ /, "");
    const field = line.slice(0, colon);
    if (field === "id") message.id = value;
    else if (field === "event") message.event = value;
    else if (field === "data") message.data = message.data === undefined ? value : `${message.data}\n${value}`;
  }
  return message;
}

// A quiet stream says something every 15 seconds.
const SILENT_MILLISECONDS = 35_000;
const FIRST_WAIT_MILLISECONDS = 500;
const MAX_WAIT_MILLISECONDS = 10_000;

interface Handlers {
  onEvents: (events: Event[]) => void;
  /** Events may be missing: everything has to be read again. */
  onGap: () => void;
  onState: (state: StreamState) => void;
}

/** The position in the stream, which a tab passes on with what it has read. */
interface Position {
  cursor: string | null;
}

interface Told extends Partial<Position> {
  ask?: true;
  events?: Event[];
  gap?: true;
  state?: StreamState;
  /** The tab that reads is not looked at: its timers are slow. */
  hidden?: boolean;
}

/**
 * Follow the events until the returned function is called or the login ends.
 *
 * A browser opens at most six connections to one server over HTTP/1.1, and every open stream takes one. So one tab of a
 * user holds the stream and passes the events on to the others; when it closes, another one resumes at the same cursor.
 * While the server does not answer, a tab that is looked at takes over from a hidden one.
 */
export function follow(user: string, handlers: Handlers): () => void {
  const position: Position = { cursor: null };
  const abort = new AbortController();
  if (!navigator.locks || typeof BroadcastChannel === "undefined") {
    // The page came over plain HTTP from another machine: each tab has a stream of its own.
    void read(position, handlers, abort.signal);
    return () => abort.abort();
  }
  const name = `mooring.events.${user}`;
  const tabs = new BroadcastChannel(name);
  const tell = (told: Told) => tabs.postMessage(told);
  let reads = false;
  let joined = false;
  let state: StreamState = "reconnecting";
  let steal = false;
  let turn = new AbortController();
  tabs.onmessage = ({ data }: MessageEvent<Told>) => {
    if (data.ask) {
      if (reads) tell({ state, cursor: position.cursor });
      return;
    }
    if (reads) return;
    if (data.cursor !== undefined) position.cursor = data.cursor;
    // What happened before this tab listened is in no message.
    if (data.gap || !joined) handlers.onGap();
    joined = true;
    if (data.events?.length) handlers.onEvents(data.events);
    if (data.state) handlers.onState(data.state);
    if (data.state === "reconnecting" && data.hidden && !document.hidden) {
      steal = true;
      turn.abort();
    }
  };
  tell({ ask: true });
  const shared: Handlers = {
    onEvents: (events) => {
      tell({ events, cursor: position.cursor });
      handlers.onEvents(events);
    },
    onGap: () => {
      tell({ gap: true, cursor: position.cursor });
      handlers.onGap();
    },
    onState: (next) => {
      state = next;
      tell({ state, cursor: position.cursor, hidden: document.hidden });
      handlers.onState(next);
    },
  };

  async function takeTurns(): Promise<void> {
    while (!abort.signal.aborted && session.session()) {
      turn = new AbortController();
      const own = new AbortController();
      const hold = async () => {
        reads = true;
        await read(position, shared, AbortSignal.any([abort.signal, own.signal]));
      };
      const options = steal ? { steal } : { signal: AbortSignal.any([abort.signal, turn.signal]) };
      steal = false;
      try {
        await navigator.locks.request(name, options, hold);
      } catch {
        // The turn of this tab was stolen, or it does not wait for it any more.
      }
      own.abort();
      reads = false;
    }
  }

  void takeTurns();
  return () => {
    abort.abort();
    tabs.close();
  };
}

/** Read the stream, again and again, until the signal or the end of the login. */
async function read(position: Position, { onEvents, onGap, onState }: Handlers, signal: AbortSignal): Promise<void> {
  let wait = FIRST_WAIT_MILLISECONDS;

  async function once(): Promise<void> {
    const abort = new AbortController();
    const stop = () => abort.abort();
    signal.addEventListener("abort", stop);
    let silence = setTimeout(stop, SILENT_MILLISECONDS);
    try {
      const headers: Record<string, string> = position.cursor ? { "Last-Event-ID": position.cursor } : {};
      const answer = await send("GET", "/api/events/stream", { headers, signal: abort.signal });
      if (!answer.body) return;
      // What happened before the first stream began is in no event.
      if (!position.cursor) onGap();
      onState("live");
      wait = FIRST_WAIT_MILLISECONDS;
      const parser = new MessageParser();
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
        clearTimeout(silence);
        silence = setTimeout(stop, SILENT_MILLISECONDS);
        const events: Event[] = [];
        for (const message of parser.push(piece.value)) {
          if (message.event === "end") {
            if (message.data?.includes("events-purged")) position.cursor = null;
            continue;
          }
          if (message.id) position.cursor = message.id;
          if (message.data) events.push(JSON.parse(message.data) as Event);
        }
        if (events.length) onEvents(events);
      }
    } finally {
      clearTimeout(silence);
      signal.removeEventListener("abort", stop);
    }
  }

  while (!signal.aborted && session.session()) {
    try {
      await once();
    } catch (error) {
      if (error instanceof ApiError && error.status === 410) position.cursor = null;
    }
    if (signal.aborted || !session.session()) break;
    onState("reconnecting");
    await new Promise((done) => setTimeout(done, wait * (0.75 + Math.random() / 2)));
    wait = Math.min(wait * 2, MAX_WAIT_MILLISECONDS);
  }
  if (!signal.aborted) onState("off");
}
