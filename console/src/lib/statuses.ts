/** The statuses of workloads that have ended. */

export const ENDED = new Set(["SUCCEEDED", "FAILED", "CANCELLED", "EXPIRED"]);
