/** The next step after an error, by its code. The message itself is always the server's. */

export const NEXT_STEPS: Record<string, string> = {
  unreachable: "If this lasts, check that the server runs: mooring servers",
  "too-many-attempts": "Wait, then try again.",
  "wrong-code": "Run mooring console for another link, or log in with your password.",
  "user-inactive": "Only an admin can activate your account: mooring user change NAME --active",
  "agent-unreachable": "The node's agent is not connected at the moment: mooring nodes",
  "try-again": "Send the request once more.",
  overtaken: "Look at the present state, then try again.",
};
