/** The page after a login. */

/** Only pages of this origin: a link cannot send the user elsewhere after the login. */
export function safeNext(next: string | undefined): string {
  return next && /^\/(?![/\\])/.test(next) && !next.startsWith("/login") ? next : "/overview";
}
