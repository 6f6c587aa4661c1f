/** The page after a login. */

/**
 * Only pages of this origin: a link cannot send the user elsewhere after the login. Browsers leave out tabs and line
 * breaks of addresses and read `\` as `/`, so an address with any of them is no page.
 */
export function safeNext(next: string | undefined): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is refused.
  return next && /^\/(?!\/)[^\x00-\x20\\]*$/.test(next) && !next.startsWith("/login") ? next : "/overview";
}
