/** A channel into a task: binary frames over a WebSocket, with flow control (see `wire/agents/channels.py`). */

import * as session from "./session";

const DATA = 0;
const ERROR_DATA = 1;
const WINDOW = 2;
const SIZE = 3;
const END = 4;
/** Both sides may send this many bytes before the first grant. */
export const CHANNEL_WINDOW = 256 * 1024;
const PIECE_BYTES = 16 * 1024;

export interface ChannelEnd {
  exit_code?: number;
  status?: number;
  code?: string;
  message?: string;
}

export type Frame =
  | { kind: "data"; data: Uint8Array }
  | { kind: "window"; count: number }
  | { kind: "end"; end: ChannelEnd };

export function decode(bytes: Uint8Array): Frame {
  const rest = bytes.subarray(1);
  switch (bytes[0]) {
    case DATA:
    case ERROR_DATA:
      return { kind: "data", data: rest };
    case WINDOW:
      return { kind: "window", count: new DataView(rest.buffer, rest.byteOffset, 4).getUint32(0) };
    case END:
      return { kind: "end", end: JSON.parse(new TextDecoder().decode(rest)) as ChannelEnd };
    default:
      throw new Error(`unknown frame ${bytes[0]}`);
  }
}

export function encodeData(data: Uint8Array): Uint8Array<ArrayBuffer> {
  const frame = new Uint8Array(data.length + 1);
  frame[0] = DATA;
  frame.set(data, 1);
  return frame;
}

export function encodeWindow(count: number): Uint8Array<ArrayBuffer> {
  const frame = new Uint8Array(5);
  frame[0] = WINDOW;
  new DataView(frame.buffer).setUint32(1, count);
  return frame;
}

export function encodeSize(rows: number, columns: number): Uint8Array<ArrayBuffer> {
  const frame = new Uint8Array(5);
  frame[0] = SIZE;
  const view = new DataView(frame.buffer);
  view.setUint16(1, rows);
  view.setUint16(3, columns);
  return frame;
}

interface Handlers {
  /** `done` grants the bytes back to the sender, so that a slow terminal slows the command down. */
  onData: (data: Uint8Array, done: () => void) => void;
  onEnd: (end: ChannelEnd) => void;
}

export interface Channel {
  write: (data: Uint8Array) => void;
  resize: (rows: number, columns: number) => void;
  close: () => void;
}

export function openChannel(path: string, opening: object, { onData, onEnd }: Handlers): Channel {
  const scheme = location.protocol === "https:" ? "wss" : "ws";
  // Browsers set no headers on WebSockets, so the token is in a subprotocol. The server picks the other one.
  const protocols = ["mooring.channel", `mooring.bearer.${session.session()?.token ?? ""}`];
  const socket = new WebSocket(`${scheme}://${location.host}${path}`, protocols);
  socket.binaryType = "arraybuffer";
  let ended = false;
  let credit = CHANNEL_WINDOW;
  let consumed = 0;
  const waiting: Uint8Array[] = [];

  function finish(end: ChannelEnd): void {
    if (ended) return;
    ended = true;
    onEnd(end);
    socket.close();
  }

  function flush(): void {
    while (waiting.length && socket.readyState === WebSocket.OPEN) {
      const next = waiting[0] as Uint8Array;
      const size = Math.min(next.length, credit, PIECE_BYTES);
      if (size === 0) return;
      socket.send(encodeData(next.subarray(0, size)));
      credit -= size;
      if (size === next.length) waiting.shift();
      else waiting[0] = next.subarray(size);
    }
  }

  socket.onopen = () => {
    socket.send(JSON.stringify(opening));
    flush();
  };
  socket.onclose = () => finish({ message: "The connection was closed." });
  socket.onmessage = ({ data }: MessageEvent<ArrayBuffer>) => {
    const frame = decode(new Uint8Array(data));
    if (frame.kind === "end") finish(frame.end);
    else if (frame.kind === "window") {
      credit += frame.count;
      flush();
    } else {
      const size = frame.data.length;
      onData(frame.data, () => {
        consumed += size;
        if (consumed < CHANNEL_WINDOW / 2 || socket.readyState !== WebSocket.OPEN) return;
        socket.send(encodeWindow(consumed));
        consumed = 0;
      });
    }
  };
  return {
    write(data) {
      waiting.push(data);
      flush();
    },
    resize(rows, columns) {
      if (socket.readyState === WebSocket.OPEN) socket.send(encodeSize(rows, columns));
    },
    close() {
      ended = true;
      socket.close();
    },
  };
}
