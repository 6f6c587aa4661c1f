/** The parts of the administration, as its URL names them. */

export const PARTS = ["tenants", "policies", "pools", "keypairs", "secrets", "volumes", "events", "audit", "servers"] as const;
export type Part = (typeof PARTS)[number];
