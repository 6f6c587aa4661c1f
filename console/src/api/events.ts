/** The event stream: one per tab, resumed after a disconnect at the last known cursor. */

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

/** Follow the events until the returned function is called or the login ends. */
export function follow({ onEvents, onGap, onState }: Handlers): () => void {
  let stopped = false;
  let abort = new AbortController();
  let cursor: string | null = null;
  let wait = FIRST_WAIT_MILLISECONDS;

  async function once(): Promise<void> {
    abort = new AbortController();
    let silence = setTimeout(() => abort.abort(), SILENT_MILLISECONDS);
    try {
      const headers: Record<string, string> = cursor ? { "Last-Event-ID": cursor } : {};
      const answer = await send("GET", "/api/events/stream", { headers, signal: abort.signal });
      if (!answer.body) return;
      // What happened before the first stream began is in no event.
      if (!cursor) onGap();
      onState("live");
      wait = FIRST_WAIT_MILLISECONDS;
      const parser = new MessageParser();
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
        clearTimeout(silence);
        silence = setTimeout(() => abort.abort(), SILENT_MILLISECONDS);
        const events: Event[] = [];
        for (const message of parser.push(piece.value)) {
          if (message.event === "end") {
            if (message.data?.includes("events-purged")) cursor = null;
            continue;
          }
          if (message.id) cursor = message.id;
          if (message.data) events.push(JSON.parse(message.data) as Event);
        }
        if (events.length) onEvents(events);
      }
    } finally {
      clearTimeout(silence);
    }
  }

  async function run(): Promise<void> {
    while (!stopped && session.session()) {
      try {
        await once();
      } catch (error) {
        if (error instanceof ApiError && error.status === 410) cursor = null;
      }
      if (stopped || !session.session()) break;
      onState("reconnecting");
      await new Promise((done) => setTimeout(done, wait * (0.75 + Math.random() / 2)));
      wait = Math.min(wait * 2, MAX_WAIT_MILLISECONDS);
    }
    onState("off");
  }

  void run();
  return () => {
    stopped = true;
    abort.abort();
  };
}
